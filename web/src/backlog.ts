// The messages at one place: those that the page has, older ones that were read back, and what comes.
import { computed, effect, signal } from "@preact/signals";
import type { Message } from "./hub.ts";
import {
  KEPT_MAX,
  ROWS_MAX,
  attempt,
  firstOf,
  hub,
  isFull,
  messages,
  readOlder,
  seesAll,
  visitor,
  whole,
} from "./state.ts";
import { type Place, placeOf, targetOf, threadOf } from "./talk.ts";

export const PAGE = 100;
/** Messages of one page where many are looked through: the most that the hub gives at once. */
const LONG_PAGE = 1000;

/** True if a message is part of the conversation at a place. */
export function isAt(message: Message, place: Place, viewer: string): boolean {
  const thread = threadOf(place);
  return thread === null ? placeOf(message, viewer) === place : message.thread === thread || message.id === thread;
}

/** Messages of one conversation, in the order of the log. While it is open, it has no gap. */
export class Backlog {
  readonly rows = signal<readonly Message[]>([]);
  private readonly place: Place;
  private readonly me: string;
  private readonly complete = signal(false);
  private reading = false;
  /** True if nothing was said before the first row. */
  readonly isWhole = computed(() => (hasHistory(this.place) ? this.complete.value : whole.value));
  /** Offset of the last message that the page had; -1 before the first. */
  private end = -1;

  constructor(place: Place) {
    this.place = place;
    this.me = visitor.peek()?.member ?? "";
    this.take(messages.peek());
  }

  /** Take what comes, until the returned function is called. */
  follow(): () => void {
    return effect(() => this.take(messages.value));
  }

  private take(all: readonly Message[]): void {
    // Messages that were read back, and those that the page dropped, stay. Exception: so many came at once that the page
    // keeps none of the old ones. Then the rest is read again.
    const held = this.end >= 0 && (all[0]?.offset ?? -1) > this.end ? [] : this.rows.peek();
    this.end = all.at(-1)?.offset ?? this.end;
    const live = all.filter((message) => isAt(message, this.place, this.me));
    const start = live[0]?.offset ?? Infinity;
    const rows = [...held.filter((message) => message.offset < start), ...live];
    // An open conversation holds as many messages as the page, and those read back. Then the newest stay.
    const first = firstOf(rows, rows.length > ROWS_MAX ? KEPT_MAX : ROWS_MAX);
    if (first > 0) this.complete.value = false;
    if (rows.length || held.length) this.rows.value = first > 0 ? rows.slice(first) : rows;
  }

  /** Read a page of what was said before the first row. */
  async readBack(): Promise<void> {
    if (this.reading || this.isWhole.peek() || hub.link.value !== "live" || isFull(this.rows.peek())) return;
    this.reading = true;
    let again = false;
    if (hasHistory(this.place))
      await attempt(async () => {
        again = !(await this.readPage());
      });
    else await attempt(readOlder);
    this.reading = false;
    if (again) await this.readBack();
  }

  /** Read one page. Returns false if the rows changed meanwhile, so that it is of no use. */
  private async readPage(): Promise<boolean> {
    const first = this.rows.peek()[0];
    const page = await historyAt(this.place, first?.offset);
    if (this.rows.peek()[0] !== first) return false;
    this.complete.value = page.length === 0;
    if (page.length) this.rows.value = [...page.toReversed(), ...this.rows.peek()];
    return true;
  }
}

/** True if the hub has a history of this place. Of what two others say, and of a thread, it has only that of everything. */
const hasHistory = (place: Place): boolean => targetOf(place) !== null;

/** Return a page of what was said at a place that has a history, the newest message first. */
async function historyAt(place: Place, before?: number, limit = PAGE): Promise<readonly Message[]> {
  const peer = place.startsWith("@") ? place.slice(1) : place;
  const everything = seesAll.value && !place.startsWith("@");
  const fields = { peer, limit, everything, ...(before === undefined ? {} : { before }) };
  return (await hub.ask("read_history", fields)).messages;
}

/** Return everything that was said at a place, up to what one page of the console holds. */
export async function everythingAt(place: Place): Promise<{ rows: readonly Message[]; whole: boolean }> {
  const me = visitor.value?.member ?? "";
  const found: Message[] = [];
  let before: number | undefined;
  while (found.length < KEPT_MAX) {
    const page = await (hasHistory(place) ? historyAt(place, before, LONG_PAGE) : historyOfAll(before));
    if (!page.length) return { rows: found.toReversed(), whole: true };
    before = page.at(-1)?.offset;
    found.push(...page.filter((message) => isAt(message, place, me)));
  }
  return { rows: found.toReversed(), whole: false };
}

async function historyOfAll(before?: number): Promise<readonly Message[]> {
  const fields = { limit: LONG_PAGE, everything: seesAll.value, ...(before === undefined ? {} : { before }) };
  return (await hub.ask("read_history", fields)).messages;
}
