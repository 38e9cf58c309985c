import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { Backlog, everythingAt, isAt } from "../src/backlog.ts";
import type { Message } from "../src/hub.ts";
import { wayTo } from "../src/opening.ts";
import { ROWS_MAX, hub, messages, visitor, whole } from "../src/state.ts";
import { message, visitor as viewer } from "./samples.ts";

/** The messages that the hub has, and the questions that it got. */
let log: Message[] = [];
let asked: { peer?: string; before?: number; everything?: boolean }[] = [];
const offsets = (rows: readonly Message[]) => rows.map(({ offset }) => offset);
const some = (from: number, to: number, fields: Partial<Message> = {}) =>
  Array.from({ length: to - from }, (_, index) => message({ offset: from + index, ...fields }));

beforeEach(() => {
  visitor.value = viewer("me");
  messages.value = [];
  whole.value = false;
  hub.link.value = "live";
  asked = [];
  hub.ask = (async (asking: string, fields: (typeof asked)[0] & { limit: number }) => {
    if (asking !== "read_history") throw new Error(`nobody answers ${asking}`);
    asked.push(fields);
    const found = log.filter(({ offset }) => offset < (fields.before ?? Infinity));
    return { messages: found.slice(-fields.limit).toReversed() };
  }) as unknown as typeof hub.ask;
});

test("a conversation has what the page has of it, what came, and what is read back", async () => {
  log = some(0, 130);
  messages.value = [...log.slice(120), message({ offset: 130, target: "@ben" })];
  const backlog = new Backlog("@ada");
  const stop = backlog.follow();
  assert.deepEqual(offsets(backlog.rows.value), [120, 121, 122, 123, 124, 125, 126, 127, 128, 129]);
  await backlog.readBack();
  assert.equal(backlog.rows.value[0]?.offset, 20);
  assert.deepEqual(asked, [{ peer: "ada", limit: 100, everything: false, before: 120 }]);
  messages.value = [...messages.value, message({ offset: 131 })];
  assert.deepEqual([backlog.rows.value.length, backlog.rows.value.at(-1)?.offset], [111, 131]);
  await backlog.readBack();
  assert.ok(!backlog.isWhole.value);
  await backlog.readBack();
  assert.ok(backlog.isWhole.value);
  assert.equal(backlog.rows.value.length, 131);
  await backlog.readBack();
  assert.equal(asked.length, 3, "nothing is before the first message");
  stop();
  messages.value = [...messages.value, message({ offset: 132 })];
  assert.equal(backlog.rows.value.at(-1)?.offset, 131, "it takes nothing any more");
});

test("what the page dropped stays in an open conversation, unless so much came that there is a gap", () => {
  messages.value = some(0, 10);
  const backlog = new Backlog("@ada");
  backlog.follow();
  messages.value = some(5, 12);
  assert.deepEqual(offsets(backlog.rows.value), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
  messages.value = some(20, 22);
  assert.deepEqual(offsets(backlog.rows.value), [20, 21]);
});

test("a page that was asked for before such a gap is asked for again", async () => {
  log = some(0, 40);
  messages.value = some(30, 32);
  const backlog = new Backlog("@ada");
  backlog.follow();
  const reading = backlog.readBack();
  messages.value = some(38, 40);
  await reading;
  assert.deepEqual(offsets(backlog.rows.value), offsets(log));
});

test("an open conversation has a limit", () => {
  messages.value = some(0, ROWS_MAX + 10);
  const backlog = new Backlog("@ada");
  assert.equal(backlog.rows.value.length, 20_000);
  assert.equal(backlog.rows.value.at(-1)?.offset, ROWS_MAX + 9);
});

test("while the hub is away, nothing is asked for", async () => {
  messages.value = some(5, 6);
  hub.link.value = "lost";
  await new Backlog("@ada").readBack();
  assert.deepEqual(asked, []);
});

test("a thread has its messages at all places, and the one that it is named after", () => {
  const [one, two, three] = [
    message({ id: "t", offset: 1, target: "#dev" }),
    message({ offset: 2, thread: "t" }),
    message({ offset: 3, thread: "u" }),
  ];
  assert.deepEqual(
    [one, two, three].map((each) => isAt(each, "thread:t", "me")),
    [true, true, false],
  );
});

test("the way to a message is a row, or older rows that must be read before", () => {
  const rows = some(10, 15);
  assert.deepEqual(wayTo(12, rows, false), { key: "m12" });
  assert.equal(wayTo(5, rows, false), "read");
  assert.deepEqual(wayTo(5, rows, true), { key: "m10" }, "it is not there any more");
  assert.deepEqual(wayTo(99, rows, false), { key: "m14" });
  assert.equal(wayTo(5, [], false), "read");
  assert.equal(wayTo(5, [], true), null);
});

test("everything that was said at a place is read to its beginning, and of others by the history of all", async () => {
  log = [...some(0, 1500), message({ offset: 1500, target: "@ben" }), ...some(1501, 2600)];
  assert.deepEqual(await everythingAt("ada ↔ ben"), { rows: [log[1500]], whole: true });
  assert.equal(asked.length, 4, "a thousand at once, and the end");
  const found = await everythingAt("@ada");
  assert.deepEqual([found.rows.length, found.rows[0]?.offset, found.rows.at(-1)?.offset], [2599, 0, 2599]);
});
