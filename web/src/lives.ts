// Lives of messages: the receipts of those that are shown, which stay current.
import { type Signal, computed, signal } from "@preact/signals";
import type { Message, Receipt } from "./hub.ts";
import { Refused } from "./hub.ts";
import { hub, messages, now, permissions } from "./state.ts";

export const STAGES = ["sent", "offered", "seen", "acked", "answered"] as const;
export type Stage = (typeof STAGES)[number];

/** The receipts of a message; `why` says why there are none. */
export interface Known {
  receipts: readonly Receipt[];
  /** True if the message has more recipients than these. */
  more: boolean;
  why: string;
}

/** Messages whose receipts are kept after they left the page. */
const KEPT_MAX = 300;
/** Shortest time between two reads of one message's receipts: a message to many members takes many steps at once. */
const STEPS_MS = 250;

class Life {
  readonly known = signal<Known | null>(null);
  /** Number of places on the page that show it. */
  shown = 0;
  /** True if the hub tells of each step. */
  followed = false;
  stale = true;
  timer: ReturnType<typeof setTimeout> | undefined;
}

const lives = new Map<string, Life>();
const asked: string[] = [];
let asking = false;

/** Return what is known of a message. */
export function lifeOf(id: string): Signal<Known | null> {
  return entry(id).known;
}

function entry(id: string): Life {
  let found = lives.get(id);
  if (found) lives.delete(id);
  else found = new Life();
  // The one that was used last is the last to be forgotten.
  lives.set(id, found);
  if (lives.size > KEPT_MAX) for (const [old, life] of lives) if (!life.shown && old !== id && lives.delete(old)) break;
  return found;
}

/** Keep a message current until the returned function is called. */
export function show(id: string): () => void {
  const life = entry(id);
  life.shown++;
  if (life.stale) ask(id);
  return () => {
    life.shown--;
    // A step that nobody follows may be missed.
    if (!life.shown && !life.followed) life.stale = true;
  };
}

function ask(id: string): void {
  if (!asked.includes(id)) asked.push(id);
  if (!asking) void work();
}

/** Ask for one after the other, the newest first: what was scrolled past is not asked for. */
async function work(): Promise<void> {
  asking = true;
  while (asked.length && hub.link.value === "live") {
    const id = asked.pop() ?? "";
    const life = lives.get(id);
    if (life?.shown) await read(id, life);
  }
  asking = false;
}

async function read(id: string, life: Life): Promise<void> {
  const under = permissions.value;
  life.stale = false;
  try {
    let answer;
    try {
      answer = await hub.ask("follow", { id, until: "offered" });
      life.followed = true;
    } catch (error) {
      if (!(error instanceof Refused && error.code === "too_many_followed")) throw error;
      answer = await hub.ask("read_receipts", { id });
      life.followed = false;
    }
    if (permissions.value === under)
      life.known.value = { receipts: answer.receipts, more: answer.more ?? false, why: "" };
  } catch (error) {
    // Receipts that were read stay. They are read again when the connection is back.
    if (hub.link.value !== "live") life.stale = true;
    else
      life.known.value ??= { receipts: [], more: false, why: error instanceof Error ? error.message : String(error) };
  }
}

hub.progressed = ({ id }) => {
  const life = lives.get(id);
  if (!life) return;
  life.stale = true;
  life.timer ??= setTimeout(() => {
    life.timer = undefined;
    if (life.shown) ask(id);
  }, STEPS_MS);
};

hub.link.subscribe((link) => {
  for (const [id, life] of lives) {
    // A session that ended follows nothing.
    if (link !== "live") [life.stale, life.followed] = [true, false];
    else if (life.shown) ask(id);
  }
});
now.subscribe(() => {
  for (const [id, life] of lives) if (life.shown && !life.followed && isOpen(life.known.value)) ask(id);
});
permissions.subscribe(() => {
  for (const life of lives.values()) life.known.value = null;
  for (const [id, life] of lives) {
    life.stale = true;
    if (life.shown) ask(id);
  }
});

const isOpen = (known: Known | null): boolean => known?.receipts.some(({ state }) => !FINAL.has(state)) ?? false;

/** States in which a delivery ends. */
export const FINAL = new Set(["acked", "expired", "dead"]);

// Answers are messages themselves.

/** Answers to each message, among those that the page has. */
const answers = computed(() => {
  const found = new Map<string, Message[]>();
  for (const message of messages.value) {
    if (!message.reply_to) continue;
    const there = found.get(message.reply_to);
    if (there) there.push(message);
    else found.set(message.reply_to, [message]);
  }
  return found;
});

export const answersTo = (id: string): readonly Message[] => answers.value.get(id) ?? [];

/** A stage of one delivery, with what shows that it was reached. */
export interface Point {
  stage: Stage;
  /** True if the delivery came so far. Without a time, a later stage shows it. */
  reached: boolean;
  at_ms: number | null;
  protocol: string;
  /** The message that answered. */
  answer: Message | null;
}

/** Return the stages of one delivery. */
export function pointsOf({ member, steps }: Receipt, answered: readonly Message[]): readonly Point[] {
  const answer = answered.find((one) => one.from === member) ?? null;
  const at = (state: string) => steps.find((step) => step.state === state && !step.way);
  const reached = Math.max(
    answer ? STAGES.indexOf("answered") : 0,
    ...steps.map(({ state }) => STAGES.indexOf(state as Stage)),
  );
  return STAGES.map((stage, index) => {
    const step = stage === "answered" ? undefined : at(stage === "sent" ? "pending" : stage);
    return {
      stage,
      reached: index <= reached,
      at_ms: step?.at_ms ?? (stage === "answered" ? (answer?.sent_at_ms ?? null) : null),
      protocol: step?.protocol ?? (stage === "answered" ? (answer?.protocol ?? "") : ""),
      answer: stage === "answered" ? answer : null,
    };
  });
}

/** The life of a message in a few words and numbers. */
export interface Summary {
  /** Number of recipients. */
  of: number;
  /** Recipients that reached each stage. */
  counts: readonly number[];
  /** The last stage that somebody reached, or why nobody goes on. */
  word: string;
  /** True if the message will not reach somebody, or waits for somebody to let it go on. */
  bad: boolean;
}

export function summed(receipts: readonly Receipt[], answered: readonly Message[]): Summary {
  const of = receipts.length;
  const points = receipts.map((receipt) => pointsOf(receipt, answered));
  const counts = STAGES.map((_, index) => points.filter((stages) => stages[index]?.reached).length);
  const last = counts.findLastIndex((count) => count > 0);
  const share = (word: string, count: number) => (of === 1 ? word : `${word} ${count}/${of}`);
  const words = [share(STAGES[last] ?? "sent", counts[last] ?? 0)];
  const ended = ["expired", "dead"].map((state): [string, number] => [
    state,
    receipts.filter((one) => one.state === state).length,
  ]);
  const held = receipts.filter((one) => one.held).length;
  const trouble = [...ended, ["held", held] as const].filter(([, count]) => count > 0);
  // With one recipient, the last word says it all.
  if (of === 1 && trouble.length && (counts[4] ?? 0) === 0) words.length = 0;
  words.push(...trouble.map(([word, count]) => share(word, count)));
  return { of, counts, word: of ? words.join(", ") : "no recipient", bad: trouble.length > 0 };
}
