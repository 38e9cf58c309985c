// The figures of model calls: what they cost, their tokens, and how many there were.
import { type Total, costOf } from "./spent.ts";

export const Figures = ({ of }: { of: Total }) => (
  <dl class="figures">
    <div>
      <dt>Cost</dt>
      <dd>{costOf(of)}</dd>
    </div>
    <div>
      <dt>Tokens</dt>
      <dd>{of.tokens.toLocaleString()}</dd>
    </div>
    <div>
      <dt>Model calls</dt>
      <dd>{of.exchanges.toLocaleString()}</dd>
    </div>
  </dl>
);
