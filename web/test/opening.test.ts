import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { Backlog } from "../src/backlog.ts";
import type { Message } from "../src/hub.ts";
import { sawAt } from "../src/inbox.ts";
import { useOpening } from "../src/opening.ts";
import { type Where, where } from "../src/route.ts";
import { hub, messages, visitor } from "../src/state.ts";
import { used } from "./hook.ts";
import { message, visitor as viewer } from "./samples.ts";

/** The messages that the hub has, and those of them that wait in the viewer's inbox. */
let log: readonly Message[] = [];
let inbox: readonly Message[] = [];
hub.ask = (async (asking: string, { before = Infinity, after = 0 }: { before?: number; after?: number }) => {
  if (asking === "read_history") return { messages: log.filter(({ offset }) => offset < before).toReversed() };
  const items = inbox.map((one) => ({ key: one.offset + 1, message: one })).filter(({ key }) => key > after);
  return { items, through: items.at(-1)?.key ?? after, complete: true };
}) as unknown as typeof hub.ask;

const settled = () => new Promise((done) => setTimeout(done, 1));
const some = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, index) => message({ offset: from + index }));
const at = (named: Partial<Where> = {}): Where => ({ page: "talk", of: "@ada", message: "", at: null, ...named });

/** Open the conversation with ada, of which the page has `rows`, while `unseen` wait in the viewer's inbox. */
async function opened(rows: readonly Message[], unseen: readonly Message[], named: Partial<Where> = {}) {
  inbox = unseen;
  where.value = at(named);
  messages.value = rows;
  hub.link.value = "live";
  await settled();
  const backlog = new Backlog("@ada");
  backlog.follow();
  return used(() => useOpening("@ada", backlog));
}

beforeEach(() => {
  log = [];
  visitor.value = viewer("me");
  hub.link.value = "lost";
});

test("a conversation opens at its first unseen message, and the line is above it", async () => {
  const opening = await opened(some(0, 20), some(10, 20));
  assert.deepEqual(opening.now().jump, { key: "m10" });
  assert.equal(opening.now().line, 10);
  opening.act(({ go }) => go(19));
  assert.deepEqual(opening.now().jump, { key: "m19" });
});

test("an address that names a message leads to it, and the line stays above what is new", async () => {
  const opening = await opened(some(100, 120), some(110, 120), { message: "m103", at: 103 });
  assert.deepEqual(opening.now().jump, { key: "m103" });
  assert.equal(opening.now().line, 110);
});

test("whoever looks again finds the line above what came since", async () => {
  const rows = some(200, 205);
  const opening = await opened(rows, rows);
  assert.equal(opening.now().line, 200);
  opening.act(() => {
    sawAt(
      "@ada",
      rows.map(({ offset }) => offset),
    );
  });
  assert.equal(opening.now().line, 200, "it stays while one reads");
  opening.act(() => dispatchEvent(new Event("blur")));
  opening.act(() => {
    messages.value = [...rows, message({ offset: 205 })];
  });
  opening.act(() => dispatchEvent(new Event("focus")));
  assert.equal(opening.now().line, 205);
});

test("an unseen message that the page does not have is read before one goes to it", async () => {
  log = some(300, 360);
  const opening = await opened(some(360, 370), [message({ offset: 303 })]);
  assert.equal(opening.now().jump, undefined);
  await opening.settle(settled());
  assert.deepEqual(opening.now().jump, { key: "m303" });
});

test("with too many unseen messages to read, a conversation opens at its end", async () => {
  const opening = await opened(some(2000, 3002), some(2000, 3002));
  assert.equal(opening.now().jump, undefined);
  assert.equal(opening.now().line, 2000);
});
