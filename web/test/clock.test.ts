// Times as people say them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, dayName, isSameDay, whenOf } from "../src/clock.ts";

const at = (text: string): number => new Date(text).getTime();
const NOW = at("2026-11-18T14:00:00");

test("a moment is said by the time since it, and after half a day by its date", () => {
  assert.equal(whenOf(NOW - 5_000, NOW), "just now");
  assert.equal(whenOf(NOW + 5_000, NOW), "just now");
  assert.equal(whenOf(NOW - 5 * 60_000, NOW), "5 min ago");
  assert.equal(whenOf(NOW - 3 * 3_600_000, NOW), "3 h ago");
  const spoken = new Intl.DateTimeFormat(undefined, { timeStyle: "short" }).format(at("2026-11-17T09:05:00"));
  assert.match(whenOf(at("2026-11-17T09:05:00"), NOW), /17/);
  assert.ok(whenOf(at("2026-11-17T09:05:00"), NOW).endsWith(spoken));
  assert.match(whenOf(at("2024-11-17T09:05:00"), NOW), /2024/);
});

test("a time since a moment has one unit", () => {
  assert.deepEqual(
    [0, 59_000, 61_000, 3_600_000, 47 * 3_600_000, 49 * 3_600_000].map((passed) => ago(0, passed)),
    ["0 s", "59 s", "1 min", "1 h", "47 h", "2 days"],
  );
  assert.equal(ago(5, 0), "0 s");
});

test("days have names, and midnight parts them", () => {
  assert.equal(dayName(at("2026-11-18T00:00:00"), NOW), "Today");
  assert.equal(dayName(at("2026-11-17T23:59:59"), NOW), "Yesterday");
  assert.match(dayName(at("2026-11-09T12:00:00"), NOW), /9/);
  assert.match(dayName(at("2024-01-01T12:00:00"), NOW), /2024/);
  assert.equal(isSameDay(at("2026-11-18T00:00:00"), at("2026-11-18T23:59:59")), true);
  assert.equal(isSameDay(at("2026-11-17T23:59:59"), at("2026-11-18T00:00:00")), false);
});
