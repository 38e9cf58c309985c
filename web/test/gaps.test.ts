import assert from "node:assert/strict";
import { test } from "node:test";
import { gapped } from "../src/gaps.ts";

test("no line is drawn through time without data", () => {
  const [times, values] = gapped([0, 1000, 5000], [[1, 2, 3]], 1000, false);
  assert.deepEqual(times, [0, 1, 2, 5]);
  assert.deepEqual(values, [1, 2, null, 3]);
});

test("what stays until it changes is drawn until then", () => {
  const [times, values] = gapped([0, 5000], [[7, 3]], 1000, true);
  assert.deepEqual(times, [0, 4, 5]);
  assert.deepEqual(values, [7, 7, 3]);
});
