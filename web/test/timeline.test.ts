import assert from "node:assert/strict";
import { test } from "node:test";
import type { Activity } from "../src/hub.ts";
import { callsSince, completeFrom, timelineOf } from "../src/timeline.ts";
import { message, objective } from "./samples.ts";

const row = (offset: number, ts: number, kind = "llm_exchange"): Activity => ({
  offset,
  kind,
  ts_ms: ts,
  at_ms: ts,
  member: "ben",
  event: {},
});
const said = (offset: number, fields: Parameters<typeof message>[0]) =>
  message({ offset, sent_at_ms: offset, ...fields });

test("a timeline has what a member said, was told and did, the newest first", () => {
  const items = timelineOf(
    "ben",
    [
      said(1, { from: "ben", target: "#dev" }),
      said(2, { target: "@ben" }),
      said(3, { target: "@cy" }),
      said(6, { target: "obj:o1", kind: "event" }),
      said(7, { target: "obj:o2", kind: "event" }),
      said(8, { target: "obj:o1" }),
    ],
    [row(0, 4), row(1, 5, "objective_open"), row(2, 9, "opaque_http")],
    [objective({ id: "o1", assignee: "ben" }), objective({ id: "o2", assignee: "cy" })],
  );
  assert.deepEqual(
    items.map(({ kind, at }) => [kind, at]),
    [
      ["other", 9],
      ["objective", 6],
      ["objective", 5],
      ["call", 4],
      ["message", 2],
      ["message", 1],
    ],
  );
});

test("of messages of the same millisecond the last one is first", () => {
  const messages = [4, 5].map((offset) => message({ offset, from: "ben", sent_at_ms: 1 }));
  assert.deepEqual(
    timelineOf("ben", messages, [], []).map(({ key }) => key),
    ["m5", "m4"],
  );
});

test("the tools that a model called follow its call", () => {
  const tool = (name: string) => ({ type: "tool_use", name, input: {} });
  const event = { entry: { response: { messages: [{ content: [tool("read"), tool("write")] }] } } };
  const items = timelineOf("ben", [], [{ ...row(3, 5), event }, row(2, 4)], []);
  assert.deepEqual(
    items.map(({ key, kind, tool: called }) => [key, kind, called?.name]),
    [
      ["3 1", "tool", "write"],
      ["3 0", "tool", "read"],
      ["3", "call", undefined],
      ["2", "call", undefined],
    ],
  );
});

test("a turn has the model calls since it began", () => {
  const rows = [row(3, 9), row(2, 8, "objective_open"), row(1, 7), row(0, 6)];
  assert.deepEqual(
    callsSince(rows, 7).map(({ offset }) => offset),
    [3, 1],
  );
});

test("a timeline begins where all of its parts are known", () => {
  const messages = [said(5, {}), said(9, {})];
  const rows = [row(1, 8), row(0, 7)];
  assert.equal(completeFrom(messages, false, rows, false), 7);
  assert.equal(completeFrom(messages, false, rows, true), 5);
  assert.equal(completeFrom(messages, true, rows, true), 0);
  assert.equal(completeFrom([], false, [], false), 0);
});
