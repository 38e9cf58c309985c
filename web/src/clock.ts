// Times as people say them.

const PLAIN_MS = 60_000;
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

export const timeOf = (ms: number): string => clock.format(ms);
export const dayOf = (ms: number): string => day.format(ms);

/** Return the time since a moment, in one word. */
export function ago(ms: number, now: number): string {
  const passed = Math.max(0, now - ms);
  if (passed < PLAIN_MS) return `${Math.floor(passed / 1000)} s`;
  if (passed < 60 * PLAIN_MS) return `${Math.floor(passed / PLAIN_MS)} min`;
  if (passed < 48 * 60 * PLAIN_MS) return `${Math.floor(passed / (60 * PLAIN_MS))} h`;
  return `${Math.floor(passed / (24 * 60 * PLAIN_MS))} days`;
}
