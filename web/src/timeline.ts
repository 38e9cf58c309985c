// The timeline of a member: what it said and was told, what its program did, and what became of its objectives.
import { type Tool, readExchange } from "./exchange.ts";
import type { Activity, Message, Objective } from "./hub.ts";

export type Kind = "message" | "call" | "tool" | "objective" | "other";

export interface Item {
  key: string;
  kind: Kind;
  at: number;
  message?: Message;
  row?: Activity;
  tool?: Tool;
}

const EXCHANGE = "llm_exchange";
const MARKS = new Set(["objective_open", "objective_close"]);

/** Return the kind of an item that shows a message, or null if the message is not about the member. */
function kindOf({ from, target, kind }: Message, name: string, own: ReadonlySet<string>): Kind | null {
  if (kind === "event" && target.startsWith("obj:") && (from === name || own.has(target))) return "objective";
  return from === name || target === `@${name}` ? "message" : null;
}

/** Return what a row of activity shows: a model call with the tools that it called, the last one first. */
function itemsOf(row: Activity): readonly Item[] {
  const at = row.ts_ms;
  if (row.kind !== EXCHANGE)
    return [{ key: `${row.offset}`, kind: MARKS.has(row.kind) ? "objective" : "other", at, row }];
  const tools = readExchange(row.event).tools.map((tool, index): Item => ({
    key: `${row.offset} ${index}`,
    kind: "tool",
    at,
    tool,
  }));
  return [...tools.toReversed(), { key: `${row.offset}`, kind: "call", at, row }];
}

/** Return everything about a member, the newest first. */
export function timelineOf(
  name: string,
  messages: readonly Message[],
  rows: readonly Activity[],
  objectives: readonly Objective[],
): readonly Item[] {
  const own = new Set(objectives.filter(({ assignee }) => assignee === name).map(({ id }) => `obj:${id}`));
  const said = messages.flatMap((message): Item[] => {
    const kind = kindOf(message, name, own);
    return kind ? [{ key: message.id, kind, at: message.sent_at_ms, message }] : [];
  });
  // The last of the same millisecond is the first here too.
  return [...said.toReversed(), ...rows.flatMap(itemsOf)].toSorted((one, other) => other.at - one.at);
}

/** Return the time from which on a timeline has everything: later than it begins, if older parts were not read. */
export const completeFrom = (
  messages: readonly Message[],
  allMessages: boolean,
  rows: readonly Activity[],
  allRows: boolean,
): number => Math.max(allMessages ? 0 : (messages[0]?.sent_at_ms ?? 0), allRows ? 0 : (rows.at(-1)?.ts_ms ?? 0));

/** Return the model calls since a time, the newest first: those of the turn that a member is in. */
export const callsSince = (rows: readonly Activity[], ms: number): readonly Activity[] =>
  rows.filter(({ kind, ts_ms }) => kind === EXCHANGE && ts_ms >= ms);
