import assert from "node:assert/strict";
import { test } from "node:test";
import type { Message } from "../src/hub.ts";
import { isRead, keysOf, sawAt, unseenAt, unseenCount } from "../src/inbox.ts";
import { channels, hub, messages, objectives, visitor } from "../src/state.ts";
import type { Channel } from "../src/hub.ts";
import { message, objective, visitor as viewer } from "./samples.ts";

/** The hub's inbox of the viewer: messages by the keys of their deliveries. */
let inbox = new Map<number, Message>();
let asked = 0;
hub.link.value = "live";
hub.ask = (async (_: string, { after, limit }: { after: number; limit: number }) => {
  asked++;
  const items = [...inbox]
    .filter(([key]) => key > after)
    .slice(0, limit)
    .map(([key, one]) => ({ key, message: one }));
  const through = items.at(-1)?.key ?? Math.max(after, ...inbox.keys());
  return { items, through, complete: through >= Math.max(0, ...inbox.keys()) };
}) as unknown as typeof hub.ask;

const settled = () => new Promise((done) => setTimeout(done, 1));
const offsetsAt = (place: string) => [...unseenAt(place)];

test("what waits in the inbox is unseen, and so is what comes", async () => {
  visitor.value = viewer("me");
  channels.value = [{ name: "dev", subscribers: ["me"] }] as unknown as Channel[];
  objectives.value = [objective({ id: "o1", watchers: ["me"] }), objective({ id: "o2" })];
  const [one, two, own] = [
    message({ offset: 10 }),
    message({ offset: 12, target: "#dev" }),
    message({ offset: 13, from: "me", target: "obj:o1" }),
  ];
  inbox = new Map([
    [1, one],
    [2, two],
    [3, own],
  ]);
  // The page was opened: of the messages that it has, one was handled before.
  messages.value = [one, message({ offset: 11 }), two, own];
  await settled();
  assert.ok(isRead.value);
  assert.deepEqual(offsetsAt("@ada"), [10]);
  assert.deepEqual(offsetsAt("#dev"), [12]);
  assert.deepEqual(offsetsAt("obj:o1"), [], "an event of one's own is not unread");
  messages.value = [
    ...messages.value,
    message({ offset: 14 }),
    message({ offset: 15, from: "me", target: "@ada" }),
    message({ offset: 16, target: "@ben" }),
    message({ offset: 17, target: "#ops" }),
    message({ offset: 18, target: "obj:o1" }),
    message({ offset: 19, target: "obj:o2" }),
    message({ offset: 20, target: "*" }),
  ];
  assert.deepEqual(offsetsAt("@ada"), [10, 14]);
  assert.deepEqual(offsetsAt("obj:o1"), [18]);
  assert.deepEqual(offsetsAt("#general"), [20]);
  assert.equal(unseenCount(), 5, "what is said to others is not unread");
});

test("what was seen here stays seen, also before the hub knows of it", async () => {
  sawAt("@ada", [10, 14]);
  assert.deepEqual(offsetsAt("@ada"), []);
  hub.link.value = "lost";
  hub.link.value = "live";
  await settled();
  assert.deepEqual(offsetsAt("@ada"), []);
  assert.deepEqual(offsetsAt("#dev"), [12]);
  assert.deepEqual(offsetsAt("#general"), [], "the hub has no such delivery");
});

test("keys of deliveries are found by reading on, and what is not in the inbox has none", async () => {
  inbox.set(4, message({ offset: 30 }));
  inbox.set(5, message({ offset: 31 }));
  assert.deepEqual(
    await keysOf([10, 30, 29]),
    new Map([
      [10, 1],
      [30, 4],
      [29, null],
    ]),
  );
  asked = 0;
  await keysOf([10, 30]);
  assert.equal(asked, 0);
});

test("of a very long inbox, a part is read at once", async () => {
  inbox = new Map(Array.from({ length: 5000 }, (_, index) => [10 + index, message({ offset: 100 + index })]));
  asked = 0;
  assert.equal((await keysOf([5099])).size, 0);
  assert.equal(asked, 10);
  await keysOf([5099]);
  assert.deepEqual(await keysOf([5099]), new Map([[5099, 5009]]));
});
