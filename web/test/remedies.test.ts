import assert from "node:assert/strict";
import { test } from "node:test";
import type { Receipt } from "../src/hub.ts";
import { remediesFor } from "../src/remedies.tsx";

const receipt = (member: string, state: string): Receipt => ({ member, state, steps: [] });
const named = (from: string, receipts: Receipt[], gone: string[] = []) =>
  remediesFor({ from }, receipts, "me", (name) => !gone.includes(name)).map(({ name, to }) => [name, to.join(" ")]);

test("who has not handled a message is nudged, and gets it again if it is the viewer's own", () => {
  const receipts = [receipt("ben", "pending"), receipt("eve", "seen"), receipt("zoe", "acked"), receipt("dan", "dead")];
  assert.deepEqual(named("ada", receipts), [["Nudge", "ben eve"]]);
  assert.deepEqual(named("me", receipts), [
    ["Nudge", "ben eve"],
    ["Resend", "ben eve dan"],
  ]);
  assert.deepEqual(named("me", receipts, ["ben", "dan"]), [
    ["Nudge", "eve"],
    ["Resend", "eve"],
  ]);
});

test("an event is nudged for, and not said again", () => {
  const event = { from: "me", kind: "event" } as const;
  const found = remediesFor(event, [receipt("ben", "pending")], "me", () => true);
  assert.deepEqual(found, [{ name: "Nudge", to: ["ben"] }]);
});

test("only the viewer's own delivery is discarded, while it waits", () => {
  assert.deepEqual(named("ada", [receipt("me", "offered")]), [["Discard", "me"]]);
  assert.deepEqual(named("ada", [receipt("me", "acked")]), []);
});

test("one click reaches no crowd", () => {
  const crowd = Array.from({ length: 21 }, (_, index) => receipt(`m${index}`, "pending"));
  assert.deepEqual(named("me", crowd), []);
  assert.equal(named("me", crowd.slice(1))[0]?.[1]?.split(" ").length, 20);
});
