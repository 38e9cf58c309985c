// What an agent asked its model while it worked on an objective: for viewers who may read activity.
import { useEffect, useState } from "preact/hooks";
import type { Activity, Objective } from "./hub.ts";
import { plain } from "./prose.tsx";
import { attempt, hub } from "./state.ts";
import { timeOf } from "./talk.ts";

const EXCHANGES_MAX = 200;

/** What is read of an exchange; anything may be missing, because programs report what they like. */
interface Exchange {
  duration?: number;
  entry?: {
    request?: { model?: string | null; messages?: readonly Said[] };
    response?: { model?: string | null; stopReason?: string | null; messages?: readonly Said[]; usage?: Usage | null };
  };
}
interface Said {
  role?: string;
  content?: readonly { type?: string; name?: string; text?: string }[];
}
interface Usage {
  inputTokens?: number | null;
  outputTokens?: number | null;
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
  const usages = rows.map((row) => (row.event as Exchange).entry?.response?.usage);
  const sum = (read: (usage: Usage) => number | null | undefined) =>
    usages.reduce((total, usage) => total + ((usage && read(usage)) ?? 0), 0).toLocaleString();
  return (
    <>
      <h2>What {plain(objective.assignee)} asked its model meanwhile</h2>
      {rows.length === 0 ? (
        <p class="count">Nothing was captured.</p>
      ) : (
        <>
          <p class="count">
            {rows.length === EXCHANGES_MAX ? `the newest ${rows.length}` : rows.length} exchanges, {sum((usage) => usage.inputTokens)} tokens in,{" "}
            {sum((usage) => usage.outputTokens)} out
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
  const { entry, duration } = row.event as Exchange;
  const said = entry?.response?.messages ?? [];
  const tools = said.flatMap((message) => message.content ?? []).filter((block) => block.type === "tool_use");
  const usage = entry?.response?.usage;
  return (
    <details class="exchange">
      <summary>
        <time>{timeOf(row.ts_ms)}</time> <b>{plain(entry?.response?.model ?? entry?.request?.model ?? "a model")}</b>{" "}
        {usage ? `${usage.inputTokens ?? "?"} → ${usage.outputTokens ?? "?"} tokens` : "tokens not captured"}
        {duration === undefined ? "" : `, ${(duration / 1000).toFixed(1)} s`}
        {tools.length ? `, called ${tools.map((tool) => plain(tool.name ?? "a tool")).join(", ")}` : ""}
      </summary>
      <pre class="data">{plain(JSON.stringify(entry, null, 2) ?? "")}</pre>
    </details>
  );
}
