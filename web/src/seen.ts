// Reading is evidence: a message counts as seen when it was in view for a moment, on a page that somebody looks at.
import { effect, signal } from "@preact/signals";
import { keysOf, sawAt } from "./inbox.ts";
import type { Place } from "./talk.ts";
import { hub, visible, visitor } from "./state.ts";

/** Time after which a message that is in view counts as seen. */
const MOMENT_MS = 700;
/** Rest after each pass, so that a fast conversation costs little. */
const REST_MS = 1000;
/** Acknowledgements in one command; the hub allows twice as many. */
const KEYS_MAX = 500;
const EVIDENCE = "it was in view in the console";

/** True if the window has the keyboard. */
const focused = signal(document.hasFocus());
addEventListener("focus", () => {
  focused.value = true;
});
addEventListener("blur", () => {
  focused.value = false;
});
export const isLookedAt = () => visible.value && focused.value;

/** Measures how long each message has been in view without a break. */
export class Dwell {
  private since = new Map<number, number>();
  private readonly moment: number;

  constructor(moment: number) {
    this.moment = moment;
  }

  /** These are in view now. Return the time until the first of them counts as seen; null if none is in view. */
  look(offsets: Iterable<number>, now: number): number | null {
    this.since = new Map([...offsets].map((offset) => [offset, this.since.get(offset) ?? now]));
    return this.since.size ? Math.max(0, Math.min(...this.since.values()) + this.moment - now) : null;
  }

  /** Return those that have been in view for a moment. */
  due(now: number): number[] {
    return [...this.since].filter(([, since]) => now - since >= this.moment).map(([offset]) => offset);
  }
}

/** Watches what is in view at one place, and reports what was seen there. */
export class Gaze {
  private readonly place: Place;
  private readonly dwell = new Dwell(MOMENT_MS);
  private readonly done = new Set<number>();
  private inView: readonly number[] = [];
  private box: Element | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(place: Place) {
    this.place = place;
  }

  /** Watch until the returned function is called. */
  follow(): () => void {
    const stop = effect(() => this.begin());
    return () => {
      stop();
      clearTimeout(this.timer);
    };
  }

  look(offsets: readonly number[], box: Element): void {
    this.inView = offsets;
    this.box = box;
    this.begin();
  }

  /** Measure from now on, until the next message is due. */
  private begin(): void {
    clearTimeout(this.timer);
    const fresh = isLookedAt() ? this.inView.filter((offset) => !this.done.has(offset)) : [];
    const wait = this.dwell.look(fresh, Date.now());
    if (wait !== null) this.timer = setTimeout(() => this.finish(), wait);
  }

  private finish(): void {
    const due = this.dwell.due(Date.now());
    if (this.box && !isCovered(this.box)) {
      for (const offset of due) this.done.add(offset);
      saw(this.place, due);
    } else this.dwell.look([], 0);
    this.begin();
  }
}

/** True if something else is drawn over the middle of an element. */
function isCovered(box: Element): boolean {
  const { left, top, width, height } = box.getBoundingClientRect();
  const there = document.elementFromPoint(left + width / 2, top + height / 2);
  return !there || !box.contains(there);
}

/** Messages that were seen, and for which the hub has no acknowledgement yet. */
const unsaid = new Set<number>();
let working = false;

function saw(place: Place, offsets: readonly number[]): void {
  if (!offsets.length) return;
  sawAt(place, offsets);
  // A person who uses the login of an agent takes nothing out of the agent's inbox.
  if (visitor.value?.kind !== "human") return;
  for (const offset of offsets) unsaid.add(offset);
  if (!working) void work();
}

hub.link.subscribe((link) => {
  if (link === "live" && !working) void work();
});

async function work(): Promise<void> {
  working = true;
  while (unsaid.size && hub.link.value === "live") {
    const some = [...unsaid].slice(0, KEYS_MAX);
    // A request that the hub refused is not repeated. A request that the connection lost is.
    const said = await acknowledge(some).catch(() => (hub.link.value === "live" ? some : []));
    for (const offset of said) unsaid.delete(offset);
    await new Promise((rested) => setTimeout(rested, REST_MS));
  }
  working = false;
}

/** Acknowledge messages, and return those that are done with. */
async function acknowledge(offsets: readonly number[]): Promise<number[]> {
  const found = await keysOf(offsets);
  const keys = [...found.values()].filter((key) => key !== null);
  if (keys.length) {
    hub.tell("ack", { keys: keys.map((key): [number, number] => [key, key]), evidence: EVIDENCE });
    // An acknowledgement has no answer. The answer to what is asked after it shows that it arrived.
    await hub.ask("fetch", { after: Math.max(...keys), limit: 1 });
  }
  return [...found.keys()];
}
