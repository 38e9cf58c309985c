import assert from "node:assert/strict";
import { test } from "node:test";
import { beginning, plain } from "../src/plain.ts";

test("what one cannot see is made visible", () => {
  assert.equal(plain("a\u202eb"), "a\\u202eb");
  assert.equal(plain("\u0000\u001b[2J"), "\\u0000\\u001b[2J");
  assert.equal(plain("zero\u200bwidth\ufeff"), "zero\\u200bwidth\\ufeff");
  assert.equal(plain("tag\u{e0041}"), "tag\\u{e0041}");
  assert.equal(plain("half \ud800"), "half \\ud800");
});

test("text that people write stays as it is", () => {
  for (const text of ["two\nlines\tand tabs", "নমস্কার", "👩‍👩‍👧", "می‌خواهم"]) assert.equal(plain(text), text);
});

test("a beginning does not end in half a sign", () => {
  assert.equal(beginning("abc", 3), "abc");
  assert.equal(beginning("abcd", 3), "abc");
  assert.equal(beginning("ab😀d", 3), "ab");
});
