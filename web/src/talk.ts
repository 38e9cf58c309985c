// Which conversation a message belongs to, as its viewer sees it.
import type { Message } from "./hub.ts";

/** A place of talk: `#channel`, `obj:<id>`, `@member`, or `a ↔ b` for what two others say to each other. */
export type Place = string;

export const GENERAL: Place = "#general";

export function placeOf(message: Message, viewer: string): Place {
  const { target, from } = message;
  if (target === "*") return GENERAL;
  if (!target.startsWith("@")) return target;
  const to = target.slice(1);
  if (from === viewer) return target;
  if (to === viewer) return `@${from}`;
  return [from, to].toSorted().join(" ↔ ");
}

/** How one writes there; nothing, where only two others talk. */
export const targetOf = (place: Place): string | null => (place.includes(" ↔ ") ? null : place);

const PLAIN_MS = 60_000;
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

export const timeOf = (ms: number): string => clock.format(ms);
export const dayOf = (ms: number): string => day.format(ms);

/** How long ago, in one word. */
export function ago(ms: number, now: number): string {
  const passed = Math.max(0, now - ms);
  if (passed < PLAIN_MS) return `${Math.floor(passed / 1000)} s`;
  if (passed < 60 * PLAIN_MS) return `${Math.floor(passed / PLAIN_MS)} min`;
  if (passed < 48 * 60 * PLAIN_MS) return `${Math.floor(passed / (60 * PLAIN_MS))} h`;
  return `${Math.floor(passed / (24 * 60 * PLAIN_MS))} days`;
}
