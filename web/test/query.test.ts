// A search as a person types it.
import assert from "node:assert/strict";
import { test } from "node:test";
import { NO_QUERY, parse, pattern, sinceMs, spelled } from "../src/query.ts";

test("filters stand anywhere between words and phrases", () => {
  assert.deepEqual(parse('from:@alice "byte order" in:#dev head* since:7d protocol:ac7 has:file'), {
    ...NO_QUERY,
    words: '"byte order" head*',
    from: "alice",
    in: "#dev",
    since: "7d",
    protocol: "ac7",
    file: true,
  });
  assert.equal(parse('in:"paint job" red').in, "paint job");
  assert.equal(parse('"from:alice"').words, '"from:alice"');
  assert.equal(parse("https://x.test at 10:30").words, "https://x.test at 10:30");
});

test("a filter that means nothing is named", () => {
  assert.deepEqual(parse("x has:picture since:soon from:").wrong, ["has:picture", "since:soon", "from:"]);
});

test("a search is spelled as it is read", () => {
  for (const text of ["one two", 'one "two three" from:alice in:#dev since:2026-11-18 protocol:ac7 has:file', ""])
    assert.equal(spelled(parse(text)), text);
  assert.deepEqual(parse(spelled({ ...NO_QUERY, in: "a ↔ b" })).in, "a ↔ b");
});

test("a time is a day or so many units ago", () => {
  assert.equal(sinceMs("2h", 10_000_000), 10_000_000 - 7_200_000);
  assert.equal(sinceMs("2026-11-18", 0), new Date(2026, 10, 18).getTime());
  for (const text of ["soon", "2026-13-45", "7", "7y", "-1d"]) assert.equal(sinceMs(text, 0), null);
});

test("the found words are marked, and no parts of other words", () => {
  const marked = (words: string, text: string) => text.match(pattern(words) ?? /$^/g) ?? [];
  assert.deepEqual(marked("Order", "the order of orders, ORDER"), ["order", "ORDER"]);
  assert.deepEqual(marked("order*", "orders reorder"), ["order"]);
  assert.deepEqual(marked('"byte order"', "a byte\norder"), ["byte\norder"]);
  assert.deepEqual(marked("c++ (x)", "c++ and (x)"), ["c++", "(x)"]);
  assert.equal(pattern("* ()"), null);
});
