// The report as one file: the page Insights with the report inside it, and without a hub.
import { render } from "preact";
import { useState } from "preact/hooks";
import { stampOf } from "./clock.ts";
import { Findings, Ranges, type Report, inRange } from "./findings.tsx";

const said = JSON.parse(document.getElementById("report")?.textContent ?? "null") as Report | null;

function Page({ report }: { report: Report }) {
  const [range, setRange] = useState(report.ranges["7d"] ? "7d" : "");
  return (
    <main class="page report">
      <header class="bar">
        <h1>Tieline report</h1>
        <Ranges report={report} range={range} choose={setRange} />
        <span class="count">as of {stampOf(report.refreshed_at_ms)}</span>
      </header>
      <Findings report={inRange(report, range)} link={() => null} />
    </main>
  );
}

const root = document.getElementById("root");
if (root && said) render(<Page report={said} />, root);
