// Work of members as one glance shows it: who is blocked, working, idle or away, since when, and on which objective.
import { grouped } from "./grouped.ts";
import type { Member, Objective } from "./hub.ts";
import { plain } from "./plain.ts";

export type State = "blocked" | "working" | "idle" | "away";

export interface Work {
  state: State;
  /** Time since which the member is in this state; null if the hub does not know it. */
  since: number | null;
  /** The objective that it works on, or that blocks it. */
  on: Objective | null;
}

/** The open objectives of each assignee, the last changed first. */
export function openWork(objectives: readonly Objective[]): ReadonlyMap<string, readonly Objective[]> {
  const open = objectives.filter(({ status }) => status === "active" || status === "blocked");
  return grouped(
    open.toSorted((one, other) => other.updated_at_ms - one.updated_at_ms),
    ({ assignee }) => assignee,
  );
}

/** Return the work of a member with these open objectives, the last changed first. */
export function workOf(member: Member, open: readonly Objective[] = []): Work {
  const active = open.find((one) => one.status === "active") ?? null;
  const blocked = open.find((one) => one.status === "blocked") ?? null;
  if (member.busy) return { state: "working", since: member.busy_since_ms ?? null, on: active ?? blocked };
  if (blocked && !active) return { state: "blocked", since: blocked.updated_at_ms, on: blocked };
  return { state: member.sessions.length ? "idle" : "away", since: member.last_seen_ms, on: active };
}

/** Return the last proof that a message reached a member, as a sentence; empty if there was none since the hub began. */
export function evidenceOf({ evidence }: Member): string {
  if (!evidence) return "";
  const how = evidence.evidence && evidence.evidence !== "ack" ? plain(evidence.evidence) : `over ${evidence.protocol}`;
  return `${evidence.state === "acked" ? "acknowledged" : evidence.state}: ${how}`;
}
