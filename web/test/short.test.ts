import assert from "node:assert/strict";
import { test } from "node:test";
import { shortId, shortPlace } from "../src/short.ts";

// The command line has the same cases: tests/cli/test_short_ids.py.
const THREAD = "01a1edd5-5cf8-7000-af12-1b1d99ad3625";

test("an id of the hub is named by its random part, any other by its beginning", () => {
  assert.equal(shortId(THREAD), "99ad3625");
  assert.equal(
    shortId("01a1edd5-5cf8-7fff-af12-1b1d99ad3625"),
    "665d3625",
    "the counter of one millisecond tells ids apart",
  );
  assert.equal(shortId("5eed0001-12ab-4000-8000-00000000000a"), "5eed0001");
});

test("a text that is no id stays whole, however long it is", () => {
  for (const name of ["release", "release-2026-11-18-planning-of-teamx", ""]) assert.equal(shortId(name), name);
});

test("objectives and threads have short names, and nothing else changes", () => {
  assert.equal(shortPlace("obj:obj-m9x2k1aa-3"), "obj:3");
  assert.equal(shortPlace("obj:release-4"), "obj:release-4");
  assert.equal(shortPlace(`thread:${THREAD}`), "thread:99ad3625");
  for (const place of ["#obj", "@ada+@ben", "*", "@obj-1-2"]) assert.equal(shortPlace(place), place);
});
