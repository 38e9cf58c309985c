import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { members, messages, objectives, visitor } from "../src/state.ts";
import { blockedOnMe, waits } from "../src/waits.ts";
import { member, message, objective, visitor as viewer } from "./samples.ts";

beforeEach(() => {
  visitor.value = viewer("me");
  members.value = [member("ada"), member("ben"), member("me")];
  objectives.value = [];
  messages.value = [];
});

const blocked = (id: string, reason: string, fields = {}) =>
  objective({ id, status: "blocked", block_reason: reason, originator: "ada", assignee: "ben", ...fields });

test("an objective waits for who gave it, and for whom its reason names", () => {
  objectives.value = [
    blocked("named", "Waiting for @me."),
    blocked("given", "no disk", { originator: "me" }),
    blocked("other", "ask meister or me-2 or re.me"),
    blocked("own", "me", { assignee: "me" }),
    blocked("active", "me", { status: "active" }),
  ];
  assert.deepEqual([...blockedOnMe.value.keys()], ["named", "given"]);
});

test("a member waits with its blocked objectives, and with what it asked last", () => {
  objectives.value = [blocked("o1", "me")];
  messages.value = [message({ offset: 1, from: "ada", body: "ready?" })];
  assert.deepEqual(
    waits.value.get("ben")?.blocked.map((one) => one.id),
    ["o1"],
  );
  assert.equal(waits.value.get("ada")?.asked?.body, "ready?");
  assert.equal(waits.value.has("me"), false);
});

test("an answer ends the wait", () => {
  messages.value = [message({ offset: 1, from: "ada" }), message({ offset: 2, from: "me", target: "@ada" })];
  assert.equal(waits.value.size, 0);
});

test("an event asks nothing", () => {
  messages.value = [message({ offset: 1, from: "ada", kind: "event" })];
  assert.equal(waits.value.size, 0);
});
