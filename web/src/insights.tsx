// Insights: what the pipeline found in the log, as charts with tables, and when it last looked.
import type { ComponentChild } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Chart, Graph } from "./chart.tsx";
import { Guard } from "./guard.tsx";
import { plain } from "./prose.tsx";
import { address } from "./route.ts";
import type { components } from "./shapes.d.ts";
import { hub, now } from "./state.ts";
import { ago } from "./talk.ts";

type Report = components["schemas"]["Report"];

const REFRESH = "tieline pipeline run";
const ROWS = 50;

const count = (value: number): string => value.toLocaleString();
const dollars = (value: number): string => `$${value.toFixed(2)}`;
const lasted = (ms: number | null): string => (ms === null ? "" : ms < 1000 ? `${Math.round(ms)} ms` : ago(0, ms));

export function Insights() {
  const [report, setReport] = useState<Report | null | undefined>(undefined);
  const [why, setWhy] = useState("");
  const live = hub.link.value === "live";
  useEffect(() => {
    const read = async () => {
      const answer = await fetch("/api/insights", { credentials: "same-origin" });
      const said: unknown = await answer
        .json()
        .catch(() => ({ error: `What the pipeline left cannot be read. Run it again: ${REFRESH}` }));
      if (answer.ok && said && !("error" in Object(said))) setReport(said as Report);
      else {
        setReport(null);
        setWhy(answer.status === 404 ? "" : ((said as { error?: string } | null)?.error ?? "The report is empty."));
      }
    };
    // When the connection is back, it is read again.
    if (live)
      void read().catch(() => {
        setReport(null);
        setWhy("The hub is not reachable right now.");
      });
  }, [live]);
  return (
    <section class="page">
      <header class="bar">
        <h1>Insights</h1>
        {report && (
          <span class="count">
            as of {ago(report.refreshed_at_ms, now.value)} ago; refresh with <code>{REFRESH}</code>
          </span>
        )}
      </header>
      <div class="scroll" tabIndex={0} role="region" aria-label="Content">
        {report === undefined && <p class="empty">Reading…</p>}
        {report === null && (
          <div class="empty">
            {why ? (
              <p>{why}</p>
            ) : (
              <>
                <p>The pipeline has not looked at this hub's log yet. On the hub's machine:</p>
                <pre>{REFRESH}</pre>
                <p>
                  Then this page has latency, backlog, who talks to whom, tokens and cost, loops, and the state of the
                  audit chain.
                </p>
              </>
            )}
          </div>
        )}
        {report && (
          <Guard expected instead={`What the pipeline left cannot be read here. Run it again: ${REFRESH}`}>
            <Findings report={report} />
          </Guard>
        )}
      </div>
    </section>
  );
}

function Findings({ report }: { report: Report }) {
  const { totals, audit } = report;
  const models = [...new Set(report.llm_by_hour.map((row) => row.model))].slice(0, 4);
  const hours = [...new Set(report.llm_by_hour.map((row) => row.hour_ms))].toSorted((one, other) => one - other);
  const colours = ["--accent", "--good", "--warn", "--bad"];
  const tokens = models.map((model, index) => ({
    label: plain(model),
    colour: colours[index] ?? "--accent",
    values: hours.map((hour) => {
      const row = report.llm_by_hour.find((one) => one.hour_ms === hour && one.model === model);
      return row ? row.input_tokens + row.output_tokens : 0;
    }),
  }));
  return (
    <div class="insights">
      <dl class="totals">
        <Total name="messages" value={count(totals.messages)} />
        <Total name="deliveries" value={count(totals.deliveries)} />
        <Total name="acknowledged" value={count(totals.acked)} />
        <Total name="waiting" value={count(totals.waiting)} />
        <Total
          name="expired or dead"
          value={count(totals.expired + totals.dead)}
          bad={totals.expired + totals.dead > 0}
        />
        <Total name="cost" value={dollars(totals.cost_usd)} />
        <Total name="audit rows checked" value={count(audit.verified_rows)} />
        <Total name="audit chain" value={audit.intact ? "intact" : "broken"} bad={!audit.intact} />
      </dl>
      <div class="charts">
        <Chart
          title="Latency until acknowledged"
          unit="ms"
          say={lasted}
          at={report.latency_series.map((point) => point.at_ms)}
          lines={[
            { label: "half", colour: "--accent", values: report.latency_series.map((point) => point.p50_ms) },
            {
              label: "99 of 100",
              colour: "--bad",
              dash: [6, 4],
              values: report.latency_series.map((point) => point.p99_ms),
            },
          ]}
        />
        <Chart
          title="Deliveries that wait"
          unit="deliveries"
          at={report.backlog_series.map((point) => point.at_ms)}
          lines={[{ label: "waiting", colour: "--warn", values: report.backlog_series.map((point) => point.waiting) }]}
        />
        <Chart title="Tokens by hour" unit="tokens" at={hours} lines={tokens} />
        <figure>
          <figcaption>Who writes to whom</figcaption>
          {report.edges.length ? <Graph edges={report.edges.slice(0, 120)} /> : <p class="count">Nobody yet.</p>}
        </figure>
      </div>
      <Rows
        title="Who writes to whom"
        heads={["From", "To", "Messages", "Answers", "Half answered within"]}
        rows={report.edges.map((one) => [
          plain(one.from),
          plain(one.to),
          count(one.messages),
          count(one.answers),
          lasted(one.response_p50_ms),
        ])}
      />
      <Rows
        title="Latency by member"
        heads={["Member", "Protocol", "Half within", "99 of 100 within", "Deliveries", "Until"]}
        rows={report.latency.map((one) => [
          plain(one.member),
          one.protocol,
          `${one.p50_ms} ms`,
          `${one.p99_ms} ms`,
          count(one.deliveries),
          one.measured,
        ])}
      />
      <Rows
        title="Waiting now"
        heads={["Member", "Deliveries"]}
        rows={report.backlog.filter((one) => one.waiting > 0).map((one) => [plain(one.member), count(one.waiting)])}
      />
      <Rows
        title="Objectives"
        heads={["Objective", "Status", "Took", "Blocked for", "Tokens", "Cost"]}
        rows={report.objectives.map((one) => [
          <a key={one.id} href={address("objectives", one.id)}>
            {plain(one.title ?? one.id)}
          </a>,
          one.status ?? "",
          lasted(one.cycle_ms),
          lasted(one.blocked_ms),
          count(one.input_tokens + one.output_tokens),
          dollars(one.cost_usd),
        ])}
      />
      <Rows
        title="Tokens and cost"
        heads={["Model", "Member", "Exchanges", "In", "Out", "Cost"]}
        rows={report.llm.map((one) => [
          plain(one.model),
          plain(one.member),
          count(one.exchanges),
          count(one.input_tokens),
          count(one.output_tokens),
          one.unpriced ? `${dollars(one.cost_usd)} and ${one.unpriced} without a price` : dollars(one.cost_usd),
        ])}
      />
      <Rows
        title="Loops"
        heads={["Conversation", "Members", "Messages", "Hops"]}
        rows={report.loops.map((one) => [
          plain(one.conversation),
          one.members.map(plain).join(", "),
          count(one.messages),
          count(one.hops),
        ])}
      />
      <Rows
        title="Audit findings"
        heads={["Kind", "Row", "What"]}
        rows={audit.findings.map((one) => [one.kind, count(one.offset), plain(one.what)])}
      />
    </div>
  );
}

const Total = ({ name, value, bad = false }: { name: string; value: string; bad?: boolean }) => (
  <div>
    <dt>{name}</dt>
    <dd class={bad ? "unseen" : ""}>{value}</dd>
  </div>
);

function Rows({
  title,
  heads,
  rows,
}: {
  title: string;
  heads: readonly string[];
  rows: readonly (readonly ComponentChild[])[];
}) {
  if (!rows.length) return null;
  return (
    <section>
      <h2>{title}</h2>
      <table>
        <thead>
          <tr>
            {heads.map((head) => (
              <th key={head}>{head}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, ROWS).map((row, index) => (
            <tr key={index}>
              {row.map((cell, column) => (
                <td key={column}>{typeof cell === "string" ? plain(cell) : cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > ROWS && <p class="count">and {rows.length - ROWS} more: tieline pipeline report</p>}
    </section>
  );
}
