import assert from "node:assert/strict";
import { test } from "node:test";
import { evidenceOf, openWork, workOf } from "../src/work.ts";
import { member, objective } from "./samples.ts";

const active = objective({ id: "a", updated_at_ms: 5 });
const blocked = objective({ id: "b", status: "blocked", updated_at_ms: 9 });

test("a member is working while it says so, whatever blocks it", () => {
  const busy = member("ada", { busy: true, busy_since_ms: 7, sessions: ["ac7"] });
  assert.deepEqual(workOf(busy, [blocked, active]), { state: "working", since: 7, on: active });
  assert.deepEqual(workOf(busy, [blocked]), { state: "working", since: 7, on: blocked });
  assert.deepEqual(workOf(busy), { state: "working", since: 7, on: null });
});

test("a member is blocked if all that it has to do is", () => {
  const here = member("ada", { sessions: ["ac7"], last_seen_ms: 3 });
  assert.deepEqual(workOf(here, [blocked]), { state: "blocked", since: 9, on: blocked });
  assert.deepEqual(workOf(here, [blocked, active]), { state: "idle", since: 3, on: active });
});

test("a member without a session is away, since it was last seen", () => {
  assert.deepEqual(workOf(member("ada", { last_seen_ms: 3 }), [active]), { state: "away", since: 3, on: active });
  assert.deepEqual(workOf(member("ada", { last_seen_ms: null })), { state: "away", since: null, on: null });
});

test("the open work of an assignee begins with what changed last", () => {
  const done = objective({ id: "c", status: "done" });
  const other = objective({ id: "d", assignee: "cy" });
  assert.deepEqual(
    [...openWork([active, done, blocked, other])],
    [
      ["ben", [blocked, active]],
      ["cy", [other]],
    ],
  );
});

test("evidence is a sentence, and names the protocol if it says no more", () => {
  const step = (state: string, evidence: string) =>
    member("ada", { evidence: { state, evidence, at_ms: 1, protocol: "ac7" } });
  assert.equal(evidenceOf(step("seen", "a hook showed it")), "seen: a hook showed it");
  assert.equal(evidenceOf(step("acked", "ack")), "acknowledged: over ac7");
  assert.equal(evidenceOf(member("ada")), "");
});
