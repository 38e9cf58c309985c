import assert from "node:assert/strict";
import { test } from "node:test";
import { rowsInView } from "../src/list.tsx";
import { Dwell } from "../src/seen.ts";

test("a message is due when it was in view for a moment without a break", () => {
  const dwell = new Dwell(700);
  assert.equal(dwell.look([1, 2], 0), 700);
  assert.equal(dwell.look([2, 3], 500), 200);
  assert.deepEqual(dwell.due(699), []);
  assert.deepEqual(dwell.due(700), [2]);
  // Out of view and in again: it begins anew.
  assert.equal(dwell.look([1, 2, 3], 1000), 0);
  assert.deepEqual(dwell.due(1300), [2, 3]);
  assert.equal(dwell.look([], 1300), null);
  assert.deepEqual(dwell.due(9000), []);
});

test("a row is in view if all of it is, and a high one if it fills half of the view", () => {
  const tops = new Float64Array([0, 50, 100, 150, 200, 1200, 1250]);
  assert.deepEqual(rowsInView(tops, 0, 100), [0, 2]);
  assert.deepEqual(rowsInView(tops, 25, 100), [1, 2]);
  assert.deepEqual(rowsInView(tops, 150, 100), [3, 5]);
  assert.deepEqual(rowsInView(tops, 180, 60), [4, 5]);
  assert.deepEqual(rowsInView(tops, 600, 100), [4, 5]);
  assert.deepEqual(rowsInView(tops, 1150, 100), [4, 6]);
  assert.deepEqual(rowsInView(new Float64Array([0]), 0, 100), [0, 0]);
});
