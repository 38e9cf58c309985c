// Messages to the viewer that it has not seen: what waits in its inbox at the hub, and what came since.
import { signal } from "@preact/signals";
import type { Message } from "./hub.ts";
import { hub, may, messages, visible, visitor } from "./state.ts";
import { GENERAL, type Place, isWithin, placeOf } from "./talk.ts";

const PAGE = 200;
/** Pages of the inbox that are read at once. A person with more unseen messages is told of these. */
const PAGES_MAX = 10;
/** Unseen messages that are known at a place. */
const UNSEEN_MAX = 20_000;
/** Shortest time between two reads of the inbox, because a person may go back and forth between two windows. */
const AGAIN_MS = 10_000;

/** Offsets of the unseen messages at each place, in the order of the log. */
const waiting = new Map<Place, Set<number>>();
/** Number of changes of `waiting`, so that readers of it are drawn again. */
const changes = signal(0);
/** True if the inbox was read, so that `waiting` is right about what was said before the page was opened. */
export const isRead = signal(false);
/** Messages that the viewer saw here. The hub may not know of the newest of them yet. */
const seen = new Set<number>();
/** Keys of the viewer's deliveries, by offset, as far as the inbox was read: `through` is the last key. */
const keys = new Map<number, number>();
let through = 0;
/** Offset of the newest message that came; -1 before the first. */
let newest = -1;
let readAt = 0;

/** Return the offsets of what the viewer has not seen at a place. */
export function unseenAt(place: Place): ReadonlySet<number> {
  void changes.value;
  return waiting.get(place) ?? new Set();
}

/** Return the number of messages that the viewer has not seen, at all places. */
export function unseenCount(): number {
  void changes.value;
  return [...waiting.values()].reduce((sum, offsets) => sum + offsets.size, 0);
}

/** The viewer has seen these messages. */
export function sawAt(place: Place, offsets: readonly number[]): void {
  const there = waiting.get(place);
  for (const offset of offsets) {
    seen.add(offset);
    there?.delete(offset);
  }
  changes.value++;
}

let turn: Promise<unknown> = Promise.resolve();

/** One reads the inbox at a time. */
function inTurn<T>(work: () => Promise<T>): Promise<T> {
  const mine = turn.then(work, work);
  turn = mine;
  return mine;
}

/**
 * Return the key of the viewer's delivery of each message. What is not in the inbox, or was handled, has null; what
 * was not found in this part of a long inbox is left out.
 */
export const keysOf = (offsets: readonly number[]): Promise<Map<number, number | null>> =>
  inTurn(async () => {
    const last = Math.max(...offsets);
    let complete = false;
    for (let page = 0; page < PAGES_MAX && !complete; page++) {
      if (offsets.every((offset) => keys.has(offset))) break;
      const inbox = await readPage(through);
      complete = inbox.complete || inbox.last > last;
    }
    const found = new Map<number, number | null>();
    for (const offset of offsets) {
      const key = keys.get(offset);
      if (key !== undefined || complete) found.set(offset, key ?? null);
    }
    return found;
  });

async function readPage(after: number) {
  const inbox = await hub.ask("fetch", { after, limit: PAGE });
  through = inbox.through;
  for (const { key, message } of inbox.items) keys.set(message.offset, key);
  return { ...inbox, last: inbox.items.at(-1)?.message.offset ?? -1 };
}

/** Read the inbox from its beginning. Another program of the viewer may have handled messages meanwhile. */
async function read(): Promise<void> {
  readAt = Date.now();
  // The hub answers in order: it has every message that came here before it is asked.
  const asked = newest;
  const me = visitor.value?.member ?? "";
  const found: Message[] = [];
  let complete = false;
  through = 0;
  keys.clear();
  for (let page = 0; page < PAGES_MAX && !complete; page++) {
    const inbox = await readPage(through);
    found.push(...inbox.items.map((item) => item.message));
    complete = inbox.complete;
  }
  const known = complete ? asked : Math.min(asked, found.at(-1)?.offset ?? -1);
  const since = [...waiting].flatMap(([place, offsets]) =>
    [...offsets].filter((offset) => offset > known).map((offset): [Place, number] => [place, offset]),
  );
  waiting.clear();
  for (const message of found) if (message.from !== me) note(placeOf(message, me), message.offset);
  for (const [place, offset] of since) note(place, offset);
  isRead.value = true;
  changes.value++;
}

function note(place: Place, offset: number): void {
  if (seen.has(offset)) return;
  let there = waiting.get(place);
  if (!there) waiting.set(place, (there = new Set()));
  there.add(offset);
  const [first] = there;
  if (there.size > UNSEEN_MAX && first !== undefined) there.delete(first);
}

/** True if a message at a place is delivered to the viewer, as far as the page knows. */
const isAddressed = (place: Place): boolean =>
  place === GENERAL ||
  place.startsWith("@") ||
  (place.startsWith("obj:") && may("members.manage")) ||
  (/^(#|obj:)/.test(place) && isWithin(place));

/** Read the inbox now. If that fails, it is read at the next occasion. */
const readNow = () => void inTurn(read).catch(() => undefined);

/** Note messages that came. The first ones were said before the page was opened: what the inbox has of them is unseen. */
function came(all: readonly Message[]): void {
  const last = all.at(-1)?.offset ?? -1;
  if (last <= newest) return;
  const me = visitor.value?.member ?? "";
  const before = newest;
  newest = last;
  if (before < 0) {
    readNow();
    return;
  }
  let noted = false;
  for (let index = all.length - 1; index >= 0; index--) {
    const message = all[index] as Message;
    if (message.offset <= before) break;
    const place = placeOf(message, me);
    if (message.from === me || !isAddressed(place)) continue;
    note(place, message.offset);
    noted = true;
  }
  if (noted) changes.value++;
}

messages.subscribe(came);
hub.link.subscribe((link) => {
  // Keys that were read before are not complete any more.
  if (link !== "live") {
    keys.clear();
    through = 0;
  } else if (newest >= 0) readNow();
});
visible.subscribe((now) => {
  if (now && hub.link.value === "live" && Date.now() - readAt > AGAIN_MS) readNow();
});
