import assert from "node:assert/strict";
import { test } from "node:test";
import { attempt, firstOf, hub, may, messages, notice, stewards, visitor } from "../src/state.ts";
import { message, visitor as viewer } from "./samples.ts";

test("the newest messages are kept, by their number", () => {
  const all = [1, 2, 3, 4].map((offset) => message({ offset }));
  assert.equal(firstOf(all, 3), 1);
  assert.equal(firstOf(all, 10), 0);
  assert.equal(firstOf([], 10), 0);
});

test("the newest messages are kept, by their length, and the last one in any case", () => {
  const long = { length: 30_000_000 } as unknown as string;
  const all = [1, 2, 3].map((offset) => message({ offset, body: long }));
  assert.equal(firstOf(all, 10), 2);
  const endless = { length: 90_000_000 } as unknown as string;
  assert.equal(firstOf([message({ body: endless })], 10), 0);
});

test("people and those who manage members look after pauses", () => {
  visitor.value = viewer("me");
  assert.ok(stewards.value);
  visitor.value = { ...viewer("bot"), kind: "agent" };
  assert.ok(!stewards.value);
  visitor.value = { ...viewer("bot", ["members.manage"]), kind: "agent" };
  assert.ok(stewards.value);
  assert.ok(!may("log.read"));
});

test("what went wrong is told", async () => {
  const fails = () => Promise.reject(new Error("The disk is full."));
  assert.equal(await attempt(fails, "Done."), false);
  assert.equal(notice.value, "The disk is full.");
  assert.equal(await attempt(() => Promise.resolve(), "Done."), true);
  assert.equal(notice.value, "Done.");
});

test("a message that comes again shows what is left of it", () => {
  messages.value = [1, 2].map((offset) => message({ offset, id: `m${offset}`, body: "a secret" }));
  hub.said([message({ offset: 1, id: "m1", body: "redacted by operator: a password" })]);
  assert.deepEqual(
    messages.value.map((one) => one.body),
    ["redacted by operator: a password", "a secret"],
  );
});
