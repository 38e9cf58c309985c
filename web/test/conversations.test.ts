import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { goesOn } from "../src/conversations.tsx";
import { latest, places, unread } from "../src/places.tsx";
import { channels, members, messages, mine, objectives, visitor } from "../src/state.ts";
import type { Channel } from "../src/hub.ts";
import { member, message, objective, visitor as viewer } from "./samples.ts";

beforeEach(() => {
  visitor.value = viewer("me");
  members.value = [];
  channels.value = [];
  objectives.value = [];
  messages.value = [];
  mine.value = [];
});

test("the last message at a place is the newest of all that the page knows", () => {
  const both = message({ offset: 5, from: "ada" });
  mine.value = [message({ offset: 4, from: "ada" }), both];
  messages.value = [both, message({ offset: 6, from: "me", target: "@ada" })];
  assert.equal(latest.value.get("@ada")?.last.offset, 6);
});

test("what came since the page was opened is unread, what was said before and what others say is not", () => {
  const before = message({ offset: 6, from: "me", target: "@ada" });
  messages.value = [before];
  messages.value = [before, message({ offset: 101 }), message({ offset: 102, target: "@ben" })];
  assert.equal(latest.value.get("@ada")?.unread, 1);
  assert.equal(unread.value, 1);
});

test("messages of one sender that come soon after each other go on, over no other difference", () => {
  const first = message({ offset: 1, sent_at_ms: 0 });
  assert.ok(goesOn(first, message({ sent_at_ms: 60_000 })));
  assert.ok(!goesOn(undefined, message()));
  for (const fields of [
    { from: "ben" },
    { protocol: "ac7" },
    { kind: "event" as const },
    { verified: false },
    { sent_at_ms: 400_000 },
  ])
    assert.ok(!goesOn(first, message(fields)), JSON.stringify(fields));
});

test("there is a place for every channel, member and objective, and for what was said", () => {
  channels.value = [{ name: "dev" }] as unknown as Channel[];
  members.value = [member("ada"), member("me")];
  objectives.value = [objective({ id: "o1" })];
  messages.value = [message({ from: "gone", target: "@ben" })];
  assert.deepEqual(places.value, ["#general", "#dev", "obj:o1", "@ada", "ben ↔ gone"]);
});
