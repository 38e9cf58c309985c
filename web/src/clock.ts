// Times as people say them, in the form of the browser's locale.

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** A time this long ago is said as a date, because people no longer count back to it. */
const FAR_MS = 12 * HOUR_MS;

const format = (options: Intl.DateTimeFormatOptions) => new Intl.DateTimeFormat(undefined, options);
const clock = format({ timeStyle: "medium" });
const short = format({ timeStyle: "short" });
const date = format({ month: "short", day: "numeric" });
const dated = format({ month: "short", day: "numeric", year: "numeric" });
const weekday = format({ weekday: "long", month: "short", day: "numeric" });
const moment = format({ dateStyle: "full", timeStyle: "long" });

/** Return the time of day, with seconds. */
export const timeOf = (ms: number): string => clock.format(ms);
/** Return the time of day, without seconds. */
export const minuteOf = (ms: number): string => short.format(ms);
export const dayOf = (ms: number): string => date.format(ms);
/** Return the day and the time of day. */
export const stampOf = (ms: number): string => `${date.format(ms)}, ${short.format(ms)}`;
/** Return everything about a moment, for a tooltip. */
export const momentOf = (ms: number): string => moment.format(ms);

const midnight = (ms: number): number => new Date(ms).setHours(0, 0, 0, 0);
export const isSameDay = (one: number, other: number): boolean => midnight(one) === midnight(other);

/** Return the name of a day, for a line between the messages of two days. */
export function dayName(ms: number, now: number): string {
  const days = Math.round((midnight(now) - midnight(ms)) / DAY_MS);
  if (days === 0) return "Today";
  if (days === 1) return "Yesterday";
  return days > 0 && days < 180 ? weekday.format(ms) : dated.format(ms);
}

/** Return the time since a moment, in one word. */
export function ago(ms: number, now: number): string {
  const passed = Math.max(0, now - ms);
  if (passed < MINUTE_MS) return `${Math.floor(passed / 1000)} s`;
  if (passed < HOUR_MS) return `${Math.floor(passed / MINUTE_MS)} min`;
  if (passed < 2 * DAY_MS) return `${Math.floor(passed / HOUR_MS)} h`;
  return `${Math.floor(passed / DAY_MS)} days`;
}

/** Return a moment as people say it: the time since it while that is short, then its day and time. */
export function whenOf(ms: number, now: number): string {
  if (now - ms < MINUTE_MS) return "just now";
  if (now - ms < FAR_MS) return `${ago(ms, now)} ago`;
  return now - ms < 180 * DAY_MS ? stampOf(ms) : dated.format(ms);
}
