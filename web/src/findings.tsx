// Contents of a report: totals, charts with tables, and lists whose rows are links to their subjects.
import type { ComponentChild } from "preact";
import { useState } from "preact/hooks";
import { Chart, Details, Graph } from "./chart.tsx";
import { ago, dayOf, stampOf } from "./clock.ts";
import { type Link, type Report, links } from "./links.tsx";
import { plain } from "./plain.ts";
import type { components } from "./shapes.d.ts";

export type { Report } from "./links.tsx";
type Totals = components["schemas"]["Totals"];

/** So many rows are shown until one asks for all of them; most people look for the first ones. */
const ROWS = 12;
const LONGEST = "30d";
const RANGES = [
  ["1d", "1 day"],
  ["7d", "7 days"],
  [LONGEST, "30 days"],
] as const;

const count = (value: number): string => value.toLocaleString();
const dollars = (value: number): string => (value && value < 0.01 ? `$${value.toFixed(4)}` : `$${value.toFixed(2)}`);
const share = (value: number | null): string => (value === null ? "" : `${(100 * value).toFixed(1)} %`);
const lasted = (ms: number | null): string => (ms === null ? "" : ms < 1000 ? `${Math.round(ms)} ms` : ago(0, ms));

/** The report over one of the ranges that the document has. */
export const inRange = (report: Report, range: string): Report => report.ranges[range] ?? report;

export function Ranges({ report, range, choose }: { report: Report; range: string; choose: (range: string) => void }) {
  if (!Object.keys(report.ranges).length) return null;
  return (
    <div class="ranges" role="group" aria-label="Time span">
      {RANGES.filter(([name]) => name === LONGEST || report.ranges[name]).map(([name, title]) => (
        <button
          key={name}
          type="button"
          aria-pressed={inRange(report, range) === inRange(report, name)}
          onClick={() => choose(name)}
        >
          {title}
        </button>
      ))}
    </div>
  );
}

export function Findings({ report, link }: { report: Report; link: Link }) {
  const { audit } = report;
  const cells = links(report, link);
  const { to, member, members, conversation, chain, change } = cells;
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
  const step = report.series_ms;
  return (
    <div class="insights">
      {report.from_ms !== null && report.to_ms !== null && (
        <p class="count">
          {stampOf(report.from_ms)} to {stampOf(report.to_ms)}
          {report.before_ms !== null && `, compared with the time before from ${dayOf(report.before_ms)}`}
        </p>
      )}
      <Sums report={report} />
      {report.failed_checks.length > 0 && (
        <p class="unseen">
          Tests of the tables failed: {report.failed_checks.map((one) => plain(`${one.table}: ${one.what}`)).join("; ")}
        </p>
      )}
      <div class="charts" tabIndex={0} role="region" aria-label="Charts">
        <Chart
          title="Latency until acknowledged"
          unit="ms"
          say={lasted}
          step={step}
          at={report.latency_series.map((point) => point.at_ms)}
          lines={[
            { label: "p50", colour: "--accent", values: report.latency_series.map((point) => point.p50_ms) },
            {
              label: "p99",
              colour: "--bad",
              dash: [6, 4],
              values: report.latency_series.map((point) => point.p99_ms),
            },
          ]}
        />
        <Chart
          title="Deliveries that wait"
          unit="deliveries"
          step={step}
          held
          at={report.backlog_series.map((point) => point.at_ms)}
          lines={[{ label: "waiting", colour: "--warn", values: report.backlog_series.map((point) => point.waiting) }]}
        />
        <Chart title="Tokens by hour" unit="tokens" step={3_600_000} at={hours} lines={tokens} />
        <figure>
          <figcaption>
            <h2>Who writes to whom</h2>
          </figcaption>
          {report.edges.length ? <Graph edges={report.edges.slice(0, 120)} /> : <p class="count">Nobody yet.</p>}
          <Details>
            <Table
              title="Who writes to whom"
              heads={["From", "To", "Messages", "Answers", "p50 until answered"]}
              right={2}
              rows={report.edges.map((one) => [
                member(one.from),
                member(one.to),
                count(one.messages),
                count(one.answers),
                lasted(one.response_p50_ms),
              ])}
            />
          </Details>
        </figure>
      </div>
      <Rows
        title="What changed"
        heads={["What", "Of", "Before", "Now"]}
        right={2}
        rows={report.changes.map((one) => [
          words(one.what),
          change(one),
          figure(one.what, one.before),
          figure(one.what, one.now),
        ])}
      />
      <Rows
        title="Who waits for whom"
        heads={["Blocked objective", "Assignee", "Since", "Waits for", "Reason"]}
        rows={report.waits.map((one) => [
          to("objectives", one.objective, one.title ?? one.objective),
          member(one.assignee ?? ""),
          stampOf(one.since_ms),
          <>
            {chain(one.chain.slice(1))}
            {one.circle && " (a circle)"}
          </>,
          plain(one.reason),
        ])}
      />
      <Rows
        title="First answers"
        heads={["Member", "Answered first", "p50", "p99"]}
        right={1}
        rows={report.responses.map((one) => [
          member(one.member),
          count(one.answers),
          lasted(one.p50_ms),
          lasted(one.p99_ms),
        ])}
      />
      <Rows
        title="Latency by member"
        heads={["Member", "Protocol", "p50", "p99", "Deliveries", "Until"]}
        rows={report.latency.map((one) => [
          member(one.member),
          one.protocol,
          lasted(one.p50_ms),
          lasted(one.p99_ms),
          count(one.deliveries),
          one.measured,
        ])}
      />
      <Rows
        title="Service levels"
        heads={["Member", "Priority", "Acknowledged", "Within a minute", "p50", "Expired", "Dead"]}
        right={2}
        rows={report.service.map((one) => [
          member(one.member),
          plain(one.priority),
          count(one.acked),
          share(one.within_minute),
          lasted(one.p50_ms),
          count(one.expired),
          count(one.dead),
        ])}
      />
      <Rows
        title="Waiting now"
        heads={["Member", "Deliveries"]}
        right={1}
        rows={report.backlog.filter((one) => one.waiting > 0).map((one) => [member(one.member), count(one.waiting)])}
      />
      <Rows
        title="Failures"
        heads={["Kind", "Cause", "Member", "Count", "Before"]}
        right={3}
        rows={report.failures.map((one) => [
          FAILURES[one.kind] ?? plain(one.kind),
          plain(one.cause),
          member(one.member),
          count(one.count),
          one.before === null ? "" : count(one.before),
        ])}
      />
      <Rows
        title="Objectives"
        heads={["Objective", "Status", "Took", "Blocked for", "Tokens", "Cost"]}
        right={2}
        rows={report.objectives.map((one) => [
          to("objectives", one.id, one.title ?? one.id),
          one.status ?? "",
          lasted(one.cycle_ms),
          lasted(one.blocked_ms),
          count(one.input_tokens + one.output_tokens),
          dollars(one.cost_usd),
        ])}
      />
      {(["objective", "member", "model", "scope", "thread"] as const).map((by) => (
        <Spending key={by} report={report} by={by} cells={cells} />
      ))}
      <Rows
        title="Loops"
        heads={["Conversation", "Members", "Messages", "Hops", "Cost meanwhile"]}
        right={2}
        rows={report.loops.map((one) => [
          conversation(one.conversation),
          members(one.members),
          count(one.messages),
          count(one.hops),
          dollars(one.cost_usd),
        ])}
      />
      <Rows
        title="Longest conversations"
        heads={["Conversation", "Messages", "Speakers", "Last"]}
        rows={report.threads.longest.map((one) => [
          conversation(String(one["conversation"])),
          count(Number(one["messages"])),
          members((one["participants"] as string[] | null) ?? []),
          stampOf(Number(one["last_ms"])),
        ])}
      />
      <Rows
        title="Storms"
        heads={["Sender", "Minute", "Messages", "Deliveries"]}
        right={2}
        rows={report.storms.map((one) => [
          member(one.sender),
          stampOf(one.minute_ms),
          count(one.messages),
          count(one.deliveries),
        ])}
      />
      <Rows
        title="Audit findings"
        heads={["Kind", "Row", "Member", "What"]}
        rows={audit.findings.map((one) => [one.kind, count(one.offset), member(one.member), plain(one.what)])}
      />
    </div>
  );
}

const FAILURES: Record<string, string> = {
  expired: "delivery expired",
  dead: "dead letter",
  refused: "command refused",
  call: "model call failed",
};

/** Return the measure of a change, in words. */
const words = (what: string): string =>
  plain(what.replace("cost_usd", "cost").replace("p50_ms", "p50").replaceAll("_", " ").replace(" ms", ""));

const figure = (what: string, value: number): string =>
  what.includes("usd")
    ? dollars(value)
    : what.includes("_ms")
      ? lasted(value)
      : what === "cache_hit"
        ? share(value)
        : count(value);

interface SpendingProps {
  report: Report;
  by: string;
  cells: ReturnType<typeof links>;
}

function Spending({ report, by, cells }: SpendingProps) {
  const isShown = (_: unknown, column: number) => by !== "member" || column !== 1;
  const subject = by === "scope" ? "Repository or other scope" : `${by.charAt(0).toUpperCase()}${by.slice(1)}`;
  const heads = [subject, "Members who spent most", "Calls", "Failed", "In", "Out", "From cache", "Cost", "Before"];
  const rows = report.spend
    .filter((one) => one.by === by)
    .map((one) => [
      cells.spent(one),
      cells.members(one.members),
      count(one.exchanges),
      count(one.failed),
      count(one.input_tokens + one.cache_read_tokens + one.cache_write_tokens),
      count(one.output_tokens),
      share(one.cache_hit),
      one.unpriced ? `${dollars(one.cost_usd)} and ${count(one.unpriced)} without a price` : dollars(one.cost_usd),
      one.before_usd === null ? "" : dollars(one.before_usd),
    ]);
  return (
    <Rows
      title={`Spend by ${by}`}
      heads={heads.filter(isShown)}
      right={by === "member" ? 1 : 2}
      rows={rows.map((row) => row.filter(isShown))}
    />
  );
}

function Sums({ report }: { report: Report }) {
  const { totals, before, audit } = report;
  const then = (tell: (totals: Totals) => string): string | null => (before ? tell(before) : null);
  const total = (name: string, tell: (totals: Totals) => string, bad = false) => (
    <Total name={name} value={tell(totals)} before={then(tell)} bad={bad} />
  );
  return (
    <dl class="totals">
      {total("messages", (one) => count(one.messages))}
      {total("deliveries", (one) => count(one.deliveries))}
      {total("acknowledged", (one) => count(one.acked))}
      {total("first answer, p50", (one) => lasted(one.first_response_p50_ms) || "–")}
      <Total name="waiting" value={count(totals.waiting)} />
      {total("expired or dead", (one) => count(one.expired + one.dead), totals.expired + totals.dead > 0)}
      {total("refused", (one) => count(one.refused))}
      {total("model calls", (one) => count(one.exchanges))}
      {total("failed, retried", (one) => `${count(one.failed_calls)}, ${count(one.retried_calls)}`)}
      {total("from cache", (one) => share(one.cache_hit) || "–")}
      {total("cost", (one) => dollars(one.cost_usd))}
      {total("cost of loops", (one) => dollars(one.loop_cost_usd), totals.loop_cost_usd > 0)}
      {report.unpriced.length > 0 && (
        <Total name="models without a price" value={report.unpriced.map(plain).join(", ")} bad />
      )}
      <Total name="audit rows checked" value={count(audit.verified_rows)} />
      <Total name="audit chain" value={audit.intact ? "intact" : "broken"} bad={!audit.intact} />
    </dl>
  );
}

interface TotalProps {
  name: string;
  value: string;
  before?: string | null;
  bad?: boolean;
}

const Total = ({ name, value, before = null, bad = false }: TotalProps) => (
  <div>
    <dt>{name}</dt>
    <dd class={bad ? "unseen" : ""}>{value}</dd>
    {before !== null && <dd class="before">before: {before}</dd>}
  </div>
);

interface RowsProps {
  title: string;
  heads: readonly string[];
  rows: readonly (readonly ComponentChild[])[];
  /** From this column on, there are numbers. */
  right?: number;
}

const Rows = (props: RowsProps) =>
  props.rows.length > 0 && (
    <section>
      <h2>{props.title}</h2>
      <Table {...props} />
    </section>
  );

function Table({ title, heads, rows, right = 99 }: RowsProps) {
  const [all, setAll] = useState(false);
  const numeric = (column: number) => (column >= right ? "num" : "");
  return (
    <>
      <div class="wide" tabIndex={0} role="region" aria-label={title}>
        <table>
          <thead>
            <tr>
              {heads.map((head, column) => (
                <th key={head} class={numeric(column)}>
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, all ? rows.length : ROWS).map((row, index) => (
              <tr key={index}>
                {row.map((cell, column) => (
                  <td key={column} class={numeric(column)}>
                    {typeof cell === "string" ? plain(cell) : cell}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > ROWS && !all && (
        <button type="button" class="quiet" onClick={() => setAll(true)}>
          Show all {count(rows.length)}
          <span class="sr"> of {title}</span>
        </button>
      )}
    </>
  );
}
