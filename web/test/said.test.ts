import assert from "node:assert/strict";
import { test } from "node:test";
import { joined } from "../src/said.ts";
import { message } from "./samples.ts";

const offsets = (read: number[], live: number[]) =>
  joined(
    read.map((offset) => message({ offset })),
    live.map((offset) => message({ offset })),
  ).map(({ offset }) => offset);

test("messages that come follow those that were read, each once", () => {
  assert.deepEqual(offsets([2, 5], [4, 5, 6, 9]), [2, 5, 6, 9]);
  assert.deepEqual(offsets([], [4, 5]), [4, 5]);
  assert.deepEqual(offsets([2, 5], []), [2, 5]);
});
