// Links of a report's rows to the members, objectives and conversations behind them.
import { type ComponentChild, Fragment } from "preact";
import { plain } from "./plain.ts";
import type { components } from "./shapes.d.ts";

export type Report = components["schemas"]["Report"];
type Spend = components["schemas"]["Spend"];
type Change = components["schemas"]["Change"];
/** Function that returns the address of a page about something, or null in a report without a console. */
export type Link = (page: string, of: string) => string | null;

const NONE = "(none)";

/** Return functions that make cells with links. */
export function links(report: Report, link: Link) {
  const to = (page: string, of: string, text = of): ComponentChild => {
    const href = of ? link(page, of) : null;
    return href ? <a href={href}>{plain(text)}</a> : plain(text);
  };
  const member = (name: string) => to("members", name);
  const conversation = (name: string) => to("talk", name);
  const thread = (name: string) => (name ? to("talk", `thread:${name}`, name) : NONE);
  const listed = (cells: readonly ComponentChild[], between: string) =>
    cells.map((cell, index) => (
      <Fragment key={index}>
        {index > 0 && between}
        {cell}
      </Fragment>
    ));
  const members = (names: readonly string[]) => listed(names.map(member), ", ");
  const step = (name: string) => (name.startsWith("@") ? to("members", name.slice(1), name) : to("objectives", name));
  const named = (text: string, names: readonly string[]) => (
    <>
      {plain(text)}
      {names.length > 0 && <> ({members(names)})</>}
    </>
  );

  const spent = ({ by, name, title }: Spend): ComponentChild => {
    if (by === "member") return member(name);
    if (by === "thread") return thread(name);
    return by === "objective" ? to("objectives", name, title ?? (name || NONE)) : plain(name || NONE);
  };

  /** A change says in its texts what it is about. */
  const change = ({ what, name }: Change): ComponentChild => {
    const by = /^cost_usd of the (\w+)$/.exec(what)?.[1];
    if (by) {
      const row = report.spend.find((one) => one.by === by && (one.title ?? (one.name || NONE)) === name);
      if (row && by === "objective" && row.name) return spent(row);
      if (row && by !== "member" && (by !== "thread" || !row.name)) return named(name, row.members);
      return by === "member" ? member(name) : by === "thread" && name !== NONE ? thread(name) : plain(name);
    }
    if (what === "p50_ms of first answers") return member(name);
    if (what === "messages" && name) return listed(name.split(" → ").map(member), " → ");
    const [, who = "", wire = ""] = (what.startsWith("p50_ms until") && /^(.*) \((.*)\)$/s.exec(name)) || [];
    if (who) return listed([member(who), `(${plain(wire)})`], " ");
    const kind = /^failures: (.*)$/.exec(what)?.[1];
    const failed = report.failures.filter((one) => one.kind === kind && one.cause === name && one.member);
    return named(name, [...new Set(failed.map((one) => one.member))].slice(0, 3));
  };

  return {
    to,
    member,
    members,
    conversation,
    spent,
    change,
    chain: (names: readonly string[]) => listed(names.map(step), " → "),
  };
}
