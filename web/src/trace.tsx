// Calls of an agent's model while it worked on an objective: for viewers who may read activity.
import { useEffect, useState } from "preact/hooks";
import { type Exchange, readExchange } from "./exchange.ts";
import type { Activity, Objective } from "./hub.ts";
import { plain } from "./plain.ts";
import { attempt, hub } from "./state.ts";
import { When } from "./when.tsx";

const EXCHANGES_MAX = 200;

export function Trace({ objective }: { objective: Objective }) {
  const [rows, setRows] = useState<readonly Activity[] | null>(null);
  useEffect(() => {
    void attempt(async () => {
      const { rows: found } = await hub.ask("read_activity", {
        member: objective.assignee,
        from_ms: objective.created_at_ms,
        ...(objective.completed_at_ms ? { to_ms: objective.completed_at_ms } : {}),
        kinds: ["llm_exchange"],
        limit: EXCHANGES_MAX,
      });
      setRows(found.toReversed());
    });
  }, [objective.id, objective.updated_at_ms]);
  if (rows === null) return null;
  const exchanges = rows.map((row) => readExchange(row.event));
  const sum = (of: (exchange: Exchange) => number | null) =>
    exchanges.reduce((total, one) => total + (of(one) ?? 0), 0).toLocaleString();
  return (
    <>
      <h2>Model calls of {plain(objective.assignee)} meanwhile</h2>
      {rows.length === 0 ? (
        <p class="count">Nothing was captured.</p>
      ) : (
        <>
          <p class="count">
            {rows.length === EXCHANGES_MAX ? `the newest ${rows.length}` : rows.length} model{" "}
            {rows.length === 1 ? "call" : "calls"}, {sum((one) => one.input)} tokens in, {sum((one) => one.output)} out
          </p>
          {rows.map((row) => (
            <OneExchange key={row.offset} row={row} />
          ))}
        </>
      )}
    </>
  );
}

const tokens = (count: number | null): string => count?.toLocaleString() ?? "?";

export function OneExchange({ row }: { row: Activity }) {
  const [open, setOpen] = useState(false);
  const { model, tools, input, output, duration } = readExchange(row.event);
  return (
    <details class="exchange" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <When ms={row.ts_ms} />{" "}
        <span>
          <b>{plain(model)}</b>{" "}
          {input === null && output === null ? "tokens not captured" : `${tokens(input)} → ${tokens(output)} tokens`}
          {duration === null ? "" : `, ${(duration / 1000).toFixed(1)} s`}
          {tools.length ? `, called ${tools.map(({ name }) => plain(name)).join(", ")}` : ""}
        </span>
      </summary>
      {/* An exchange can be long, and most are never opened. */}
      {open && <pre class="data">{plain(JSON.stringify(row.event["entry"], null, 2) ?? "")}</pre>}
    </details>
  );
}
