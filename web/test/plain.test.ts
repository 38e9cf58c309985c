// Texts of others on one line.
import assert from "node:assert/strict";
import { test } from "node:test";
import { oneLine } from "../src/plain.ts";

test("a body on one line has no signs of markdown", () => {
  const lines: readonly [string, string][] = [
    ["# Result\n\nIt is **done**, see [the log](https://x.test/a).", "Result It is done, see the log."],
    ["- one\n- *two*\n3. `three()`", "one two three()"],
    ["> quoted\n\n```sh\nls -l\n```", "quoted ls -l"],
    ["~~old~~ __new__ _now_", "old new now"],
    ["![a picture](https://x.test/a.png) here", "a picture here"],
  ];
  for (const [body, line] of lines) assert.equal(oneLine(body, 300), line);
});

test("what only looks like markdown stays", () => {
  for (const text of ["snake_case_name", "2 * 3 * 4", "#channel", "a_b and c_d", "**", "f(*args, **kwargs)", "x > y"])
    assert.equal(oneLine(text, 300), text);
});

test("one line is cut, and shows what cannot be seen", () => {
  assert.equal(oneLine("x".repeat(500), 10), "x".repeat(10));
  assert.equal(oneLine("a\u202eb", 10), "a\\u202eb");
});
