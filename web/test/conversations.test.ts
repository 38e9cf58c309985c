import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { latest, places, unread } from "../src/conversations.tsx";
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

test("what others said is unread, one's own is not", () => {
  messages.value = [
    message({ offset: 1, from: "ada" }),
    message({ offset: 2, from: "me", target: "@ada" }),
    message({ offset: 3, from: "ada" }),
  ];
  assert.equal(latest.value.get("@ada")?.unread, 2);
  assert.equal(latest.value.get("@ada")?.last.offset, 3);
});

test("what two others say to each other counts for nobody else", () => {
  messages.value = [message({ offset: 1, from: "ada", target: "@ben" }), message({ offset: 2, from: "ada" })];
  assert.equal(unread.value, 1);
});

test("what was read is kept for each member of this browser", () => {
  localStorage.setItem("read eve", JSON.stringify({ "@ada": 1 }));
  visitor.value = viewer("eve");
  messages.value = [
    message({ offset: 1, from: "ada", target: "@eve" }),
    message({ offset: 2, from: "ada", target: "@eve" }),
  ];
  assert.equal(unread.value, 1);
});

test("another tab that read something is heard of", () => {
  visitor.value = viewer("tom");
  messages.value = [message({ offset: 1, from: "ada", target: "@tom" })];
  assert.equal(unread.value, 1);
  localStorage.setItem("read tom", JSON.stringify({ "@ada": 1 }));
  dispatchEvent(Object.assign(new Event("storage"), { key: "read tom" }));
  assert.equal(unread.value, 0);
});

test("marks that cannot be read are none", () => {
  localStorage.setItem("read zoe", "{");
  visitor.value = viewer("zoe");
  messages.value = [message({ offset: 1, from: "ada", target: "@zoe" })];
  assert.equal(unread.value, 1);
});

test("a message that is in both lists counts once", () => {
  const both = message({ offset: 5, from: "ada" });
  mine.value = [message({ offset: 4, from: "ada" }), both];
  messages.value = [both];
  assert.equal(unread.value, 2);
});

test("there is a place for every channel, member and objective, and for what was said", () => {
  channels.value = [{ name: "dev" }] as unknown as Channel[];
  members.value = [member("ada"), member("me")];
  objectives.value = [objective({ id: "o1" })];
  messages.value = [message({ from: "gone", target: "@ben" })];
  assert.deepEqual(places.value, ["#general", "#dev", "obj:o1", "@ada", "ben ↔ gone"]);
});
