// Insights: the pipeline's last report, with a range of days, and links to what each row is about.
import { useEffect, useState } from "preact/hooks";
import { ago } from "./clock.ts";
import { Findings, Ranges, type Report, inRange } from "./findings.tsx";
import { Guard } from "./guard.tsx";
import { address } from "./route.ts";
import { Share } from "./share.tsx";
import { hub, now, visitor } from "./state.ts";
import { placeNamed } from "./talk.ts";

const REFRESH = "tieline pipeline run";

/** Return the address to which a row leads: a member, an objective, or the place of a conversation. */
function link(page: string, of: string): string {
  return address(page, page === "talk" ? placeNamed(of, visitor.value?.member ?? "") : of);
}

export function Insights() {
  const [report, setReport] = useState<Report | null | undefined>(undefined);
  const [why, setWhy] = useState("");
  const [range, setRange] = useState("7d");
  const [asked, setAsked] = useState(0);
  const live = hub.link.value === "live";
  useEffect(() => {
    const read = async () => {
      const answer = await fetch("/api/insights", { credentials: "same-origin" });
      const said: unknown = await answer
        .json()
        .catch(() => ({ error: `What the pipeline left cannot be read. Run it again: ${REFRESH}` }));
      if (answer.ok && said && !("error" in Object(said)))
        setReport({ ...(said as Report), ranges: (said as Partial<Report>).ranges ?? {} });
      else {
        setReport(null);
        setWhy(answer.status === 404 ? "" : ((said as { error?: string } | null)?.error ?? "The report is empty."));
      }
    };
    // Read the report again when the connection is back.
    if (live)
      void read().catch(() => {
        setReport(null);
        setWhy("The hub is not reachable right now.");
      });
  }, [live, asked]);
  return (
    <section class="page">
      <header class="bar">
        <h1>Insights</h1>
        {report && <Ranges report={report} range={range} choose={setRange} />}
        {report && (
          <span class="count">
            as of {ago(report.refreshed_at_ms, now.value)} ago; refresh with <code>{REFRESH}</code>
          </span>
        )}
        <button type="button" onClick={() => setAsked(asked + 1)}>
          Refresh
        </button>
        <Share asks={{ command: `tieline pipeline report --window ${range}`, path: "/api/insights" }} />
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
            <Findings report={inRange(report, range)} link={link} />
          </Guard>
        )}
      </div>
    </section>
  );
}
