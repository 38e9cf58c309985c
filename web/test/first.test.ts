import assert from "node:assert/strict";
import { test } from "node:test";
import { isEmpty, isThere, stepsFor } from "../src/first.tsx";
import type { Member, Message } from "../src/hub.ts";
import { member, message } from "./samples.ts";

const PROGRAM = { word: "codex", command: "codex" };
const there = member("mo", { sessions: ["mcp"] });
const evidence = { state: "acked", at_ms: 5 };

function done(roster: readonly Member[], said: readonly Message[] = [], joined = false): readonly boolean[] {
  return stepsFor(PROGRAM, "mo", { roster, said, viewer: "root", joined }).map((step) => step.done);
}

test("a step is done when the hub shows it", () => {
  const [before, after] = [4, 6].map((sent_at_ms) => message({ from: "root", target: "@mo", sent_at_ms }));
  assert.deepEqual(done([]), [false, false, false]);
  assert.deepEqual(done([member("mo")]), [true, false, false]);
  assert.deepEqual(done([there], [], true), [true, true, false]);
  assert.deepEqual(done([{ ...there, evidence }], [], true), [true, true, false]);
  assert.deepEqual(done([{ ...there, evidence }], [after as Message], true), [true, true, false]);
  assert.deepEqual(done([{ ...there, evidence }], [before as Message], true), [true, true, true]);
});

test("sessions that only test the connection are not the agent's own", () => {
  assert.equal(isThere("mo", [there]), true);
  assert.equal(isThere("mo", [there, member("connect-canary-12-ab")]), false);
  assert.equal(isThere("mo", [member("mo")]), false);
});

test("a hub is empty until an agent is there or has said something", () => {
  const person = member("ann", { kind: "human", sessions: ["tieline"] });
  assert.equal(isEmpty([], [], "root"), true);
  assert.equal(isEmpty([person, member("mo")], [message({ from: "ann" })], "root"), true);
  assert.equal(isEmpty([there], [], "root"), false);
  assert.equal(isEmpty([member("mo")], [message({ from: "mo" })], "root"), false);
  const tested = message({ from: "mo", target: "@connect-canary-12-ab" });
  assert.equal(isEmpty([member("mo")], [tested], "root"), true);
  assert.equal(isEmpty([there], [], "mo"), true);
});

test("the commands have the program, and the names of the agent and of the viewer", () => {
  const steps = stepsFor(PROGRAM, "mo", { roster: [], said: [], viewer: "root", joined: false });
  assert.deepEqual(
    steps.map((step) => step.command),
    ["tieline connect codex --as mo", "codex", 'tieline send @mo "Hello. Who are you?" --as root'],
  );
});
