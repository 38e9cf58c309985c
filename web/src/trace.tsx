// Calls of an agent's model while it worked on an objective: for viewers who may read activity.
import { useEffect, useState } from "preact/hooks";
import type { Activity, Objective } from "./hub.ts";
import { plain } from "./plain.ts";
import { attempt, hub } from "./state.ts";
import { timeOf } from "./clock.ts";

const EXCHANGES_MAX = 200;

/** The parts of a model call that are shown. */
interface Exchange {
  model: string;
  tools: readonly string[];
  /** Tokens, where they were captured. */
  input: number | null;
  output: number | null;
  duration: number | null;
}

const record = (value: unknown): Record<string, unknown> =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const amount = (value: unknown): number | null => (typeof value === "number" ? value : null);

/** Anything may be missing or something else, because programs report what they like. */
function read(event: unknown): Exchange {
  const entry = record(record(event)["entry"]);
  const [request, response] = [record(entry["request"]), record(entry["response"])];
  const usage = record(response["usage"]);
  const blocks = list(response["messages"]).flatMap((said) => list(record(said)["content"]).map(record));
  return {
    model: text(response["model"]) || text(request["model"]) || "a model",
    tools: blocks.filter((block) => block["type"] === "tool_use").map((block) => text(block["name"]) || "a tool"),
    input: amount(usage["inputTokens"]),
    output: amount(usage["outputTokens"]),
    duration: amount(record(event)["duration"]),
  };
}

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
  const exchanges = rows.map((row) => read(row.event));
  const sum = (of: (exchange: Exchange) => number | null) =>
    exchanges.reduce((total, one) => total + (of(one) ?? 0), 0).toLocaleString();
  return (
    <>
      <h2>What {plain(objective.assignee)} asked its model meanwhile</h2>
      {rows.length === 0 ? (
        <p class="count">Nothing was captured.</p>
      ) : (
        <>
          <p class="count">
            {rows.length === EXCHANGES_MAX ? `the newest ${rows.length}` : rows.length} exchanges,{" "}
            {sum((one) => one.input)} tokens in, {sum((one) => one.output)} out
          </p>
          {rows.map((row) => (
            <One key={row.offset} row={row} />
          ))}
        </>
      )}
    </>
  );
}

function One({ row }: { row: Activity }) {
  const [open, setOpen] = useState(false);
  const { model, tools, input, output, duration } = read(row.event);
  return (
    <details class="exchange" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <time>{timeOf(row.ts_ms)}</time> <b>{plain(model)}</b>{" "}
        {input === null && output === null ? "tokens not captured" : `${input ?? "?"} → ${output ?? "?"} tokens`}
        {duration === null ? "" : `, ${(duration / 1000).toFixed(1)} s`}
        {tools.length ? `, called ${tools.map(plain).join(", ")}` : ""}
      </summary>
      {/* An exchange can be long, and most are never opened. */}
      {open && <pre class="data">{plain(JSON.stringify(record(row.event)["entry"], null, 2) ?? "")}</pre>}
    </details>
  );
}
