import assert from "node:assert/strict";
import { test } from "node:test";
import { costOf, totalOf } from "../src/spent.ts";

const spent = (cost_usd: number | null, exchanges = 1) => ({
  member: "ada",
  model: "m",
  exchanges,
  input_tokens: 10,
  output_tokens: 2,
  cost_usd,
});

test("a total counts calls without a price apart", () => {
  const total = totalOf([spent(1.5), spent(null, 3)]);
  assert.deepEqual(total, { exchanges: 4, tokens: 24, cost: 1.5, unpriced: 3 });
  assert.match(costOf(total), /1.50/);
});

test("a small cost keeps its digits, and no price is no cost", () => {
  assert.match(costOf(totalOf([spent(0.0123)])), /0.0123/);
  assert.match(costOf(totalOf([spent(0.000002)])), /^< .*0.0001/);
  assert.equal(costOf(totalOf([spent(null)])), "no price");
  assert.match(costOf(totalOf([])), /0.00/);
});
