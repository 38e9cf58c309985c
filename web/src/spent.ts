// Sums of model calls, and how they are written.
import type { Spent } from "./api.ts";

export type { Spent } from "./api.ts";

export interface Total {
  exchanges: number;
  tokens: number;
  cost: number;
  /** Calls with a model without a price, which are not part of the cost. */
  unpriced: number;
}

export function totalOf(spent: readonly Spent[]): Total {
  const total: Total = { exchanges: 0, tokens: 0, cost: 0, unpriced: 0 };
  for (const { exchanges, input_tokens, output_tokens, cost_usd } of spent) {
    total.exchanges += exchanges;
    total.tokens += input_tokens + output_tokens;
    total.cost += cost_usd ?? 0;
    if (cost_usd === null) total.unpriced += exchanges;
  }
  return total;
}

const dollars = (digits: number) =>
  new Intl.NumberFormat(undefined, { style: "currency", currency: "USD", maximumFractionDigits: digits });
const exact = dollars(2);
const SMALLEST = 0.0001;
const small = dollars(4);

/** Return a cost as people write it; small ones with more digits. */
export function costOf({ cost, exchanges, unpriced }: Total): string {
  if (exchanges && exchanges === unpriced) return "no price";
  if (cost > 0 && cost < SMALLEST) return `< ${small.format(SMALLEST)}`;
  return (cost > 0 && cost < 0.1 ? small : exact).format(cost);
}
