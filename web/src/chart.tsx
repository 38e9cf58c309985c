// Lines over time, and who writes to whom. Each chart has a table that says the same: lines in the figure, members under it.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { gapped } from "./gaps.ts";
import { plain } from "./plain.ts";
import type { components } from "./shapes.d.ts";
import { dayOf, minuteOf, stampOf } from "./clock.ts";
import { scheme } from "./theme.ts";

export interface Line {
  label: string;
  /** Names one of the sheet's colours, so that light and dark differ there. */
  colour: string;
  dash?: number[];
  values: readonly (number | null)[];
}

interface Props {
  title: string;
  unit: string;
  at: readonly number[];
  lines: readonly Line[];
  /** The time between two points. Where more passes, nothing is known. */
  step: number;
  /** A value that stays until the next one: the line goes on where nothing is known. */
  held?: boolean;
  /** Of times that differ a thousandfold: says one as people do. Their scale is logarithmic. */
  say?: (value: number) => string;
}

const HEIGHT = 220;
/** Room for half of the last time under the axis. */
const EDGE = 32;
const HALF_HOUR = 1800;
const DAY = 86_400;
/** 1, 10 and 100 ms; 1 and 10 s; 1 and 10 min; 1 and 10 h; 4 and 40 days. */
const DURATIONS_MS = [1, 10, 100, 1e3, 1e4, 6e4, 6e5, 3.6e6, 3.6e7, 3.456e8, 3.456e9];

const durations = (say: (value: number) => string): uPlot.Axis => ({
  splits: (_, _axis, from, to) => DURATIONS_MS.filter((mark) => mark >= from && mark <= to),
  filter: (_, marks) => marks,
  values: (_, marks) => marks.map(say),
});

/** Times in seconds, in the form of the browser's locale: with the day where it begins. */
function times(_: uPlot, marks: readonly number[]): string[] {
  const days = marks.map((second) => dayOf(second * 1000));
  const byDay = marks.length > 1 && (marks[1] ?? 0) - (marks[0] ?? 0) >= DAY;
  return marks.map((second, index) => {
    const day = days[index] ?? "";
    if (byDay) return day;
    return index === 0 || days[index - 1] !== day ? `${minuteOf(second * 1000)}\n${day}` : minuteOf(second * 1000);
  });
}

/** Values over time; times in milliseconds. */
export function Chart({ title, unit, at, lines, say, step, held = false }: Props) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = box.current;
    if (!element || !at.length) return;
    const colour = (name: string) => getComputedStyle(element).getPropertyValue(name).trim();
    const axis = {
      stroke: colour("--faint"),
      grid: { stroke: colour("--line"), width: 1 },
      ticks: { stroke: colour("--line") },
    };
    const chart = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        padding: [null, EDGE, null, null],
        // Without this, a single point is drawn in the middle of a range of years.
        scales: {
          x: { time: true, range: (_, from, to) => (from === to ? [from - HALF_HOUR, to + HALF_HOUR] : [from, to]) },
          ...(say && { y: { distr: 3 as const } }),
        },
        // Show the last values until the person points at others.
        hooks: { ready: [(drawn) => drawn.setLegend({ idx: (drawn.data[0]?.length ?? 1) - 1 })] },
        axes: [
          { ...axis, values: times, space: 76 },
          { ...axis, size: 76, ...(say ? durations(say) : { label: unit, labelSize: 18 }) },
        ],
        series: [
          {
            value: (_, second: number | null) => (second === null ? "–" : stampOf(second * 1000)),
          },
          ...lines.map((line) => ({
            label: line.label,
            stroke: colour(line.colour),
            width: 2,
            dash: line.dash ?? [],
            points: { show: at.length < 60, size: 4 },
            ...(say && { value: (_: uPlot, value: number | null) => (value === null ? "–" : say(value)) }),
          })),
        ],
      },
      // Zero has no place on a logarithmic scale.
      gapped(
        at,
        lines.map((line) => line.values.map((value) => (say && value !== null ? Math.max(1, value) : value))),
        step,
        held,
      ) as uPlot.AlignedData,
      element,
    );
    const resized = new ResizeObserver(() => chart.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      chart.destroy();
    };
  }, [at, lines, scheme.value]);
  const words = lines.map((line) => `${line.label}: ${summary(line.values)} ${unit}`).join("; ");
  return (
    <figure>
      <figcaption>
        <h2>{title}</h2>
      </figcaption>
      {at.length ? (
        <>
          <div class="chart" ref={box} role="img" aria-label={`${title}. ${words}`} />
          <Details>
            <Figures unit={unit} at={at} lines={lines} />
          </Details>
        </>
      ) : (
        <p class="count">Nothing yet.</p>
      )}
    </figure>
  );
}

/** Figures of a chart. They are drawn only when a person opens them. */
export function Details({ children }: { children: ComponentChildren }) {
  const [open, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>As a table</summary>
      {open && children}
    </details>
  );
}

/** Table of the lines' values, newest first. */
const Figures = ({ unit, at, lines }: Pick<Props, "unit" | "at" | "lines">) => (
  <table>
    <thead>
      <tr>
        <th>At</th>
        {lines.map((line) => (
          <th key={line.label} class="num">
            {line.label}, {unit}
          </th>
        ))}
      </tr>
    </thead>
    <tbody>
      {at
        .map((ms, index) => (
          <tr key={ms}>
            <td>{stampOf(ms)}</td>
            {lines.map((line) => (
              <td key={line.label} class="num">
                {line.values[index]?.toLocaleString() ?? ""}
              </td>
            ))}
          </tr>
        ))
        .toReversed()}
    </tbody>
  </table>
);

function summary(values: readonly (number | null)[]): string {
  const known = values.filter((value) => value !== null);
  return known.length ? `last ${known.at(-1)}, highest ${Math.max(...known)}` : "none";
}

type Edge = components["schemas"]["Edge"];

const SIDE = 560;
const TALL = 330;
const SHOWN = 24;
/** A part of a name that fits beside the circle: a longer name takes more lines. */
const LABEL = /.{1,19}/gu;

/** Graph of the members who write to each other, as a circle. The table under it has all of them. */
export function Graph({ edges }: { edges: readonly Edge[] }) {
  const weight = new Map<string, number>();
  for (const { from, to, messages } of edges) {
    weight.set(from, (weight.get(from) ?? 0) + messages);
    weight.set(to, (weight.get(to) ?? 0) + messages);
  }
  const names = [...weight]
    .toSorted((one, other) => other[1] - one[1])
    .slice(0, SHOWN)
    .map(([name]) => name)
    .toSorted();
  const place = new Map(
    names.map((name, index) => {
      const angle = (2 * Math.PI * index) / names.length - Math.PI / 2;
      return [name, { x: SIDE / 2 + Math.cos(angle) * 140, y: TALL / 2 + Math.sin(angle) * 140, angle }];
    }),
  );
  const most = Math.max(1, ...edges.map((edge) => edge.messages));
  return (
    <svg
      class="graph"
      viewBox={`0 0 ${SIDE} ${TALL}`}
      role="img"
      aria-label="Who writes to whom; the table has the figures"
    >
      {edges.map(({ from, to, messages }) => {
        const [one, other] = [place.get(from), place.get(to)];
        if (!one || !other || from === to) return null;
        // Both directions bend the same way, so that they do not cover each other.
        const bend = {
          x: (one.x + other.x) / 2 + (other.y - one.y) * 0.12,
          y: (one.y + other.y) / 2 - (other.x - one.x) * 0.12,
        };
        return (
          <path
            key={`${from} ${to}`}
            d={`M${one.x},${one.y} Q${bend.x},${bend.y} ${other.x},${other.y}`}
            stroke-width={1 + (5 * messages) / most}
          >
            <title>{`${plain(from)} → ${plain(to)}: ${messages}`}</title>
          </path>
        );
      })}
      {names.map((name) => {
        const at = place.get(name);
        if (!at) return null;
        const right = Math.cos(at.angle) >= 0;
        return (
          <g key={name}>
            <circle cx={at.x} cy={at.y} r={6} />
            <text x={at.x + (right ? 10 : -10)} y={at.y + 4} text-anchor={right ? "start" : "end"}>
              {(plain(name).match(LABEL) ?? []).map((part, line) => (
                <tspan key={line} x={at.x + (right ? 10 : -10)} dy={line && 13}>
                  {part}
                </tspan>
              ))}
            </text>
          </g>
        );
      })}
    </svg>
  );
}
