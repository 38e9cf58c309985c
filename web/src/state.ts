// What the console knows: who looks, who and what there is, and what was said. Pages read signals; nothing else changes them.
import { batch, computed, effect, signal } from "@preact/signals";
import { logOut } from "./ac7.ts";
import { type Channel, Hub, type Member, type Message, type Objective, type Pause } from "./hub.ts";
import type { components } from "./shapes.d.ts";

export type Visitor = components["schemas"]["Visitor"];

/** Messages that are kept in the page, and their characters; older ones are read again when they are scrolled to. */
export const KEPT_MAX = 20_000;
const KEPT_CHARACTERS_MAX = 50_000_000;
/** How often what was said is drawn, at most: the hub tells of it twenty times a second. */
const SHOW_MS = 150;
const OBJECTIVES_MS = 1000;
const FIRST_PAGE = 200;
const ROSTER_MS = 5000;
const NOTICE_MS = 6000;

export const hub = new Hub();
export const visitor = signal<Visitor | null | undefined>(undefined);
export const members = signal<readonly Member[]>([]);
export const channels = signal<readonly Channel[]>([]);
export const objectives = signal<readonly Objective[]>([]);
/** Conversations that stand still because agents looped in them; empty for who may not know. */
export const pauses = signal<readonly Pause[]>([]);
/** What was said and may be seen, in the order of the log, without a gap. */
export const messages = signal<readonly Message[]>([]);
/** Whether everything that the log has before the first message is here. */
export const whole = signal(false);
/** A sentence for the person, for a while. */
export const notice = signal("");
export const now = signal(Date.now());

export const may = (permission: string): boolean => visitor.value?.permissions.includes(permission) ?? false;
export const seesAll = computed(() => may("log.read"));
export const byName = computed(() => new Map(members.value.map((member) => [member.name, member])));

/** After the connection was lost: up to which offset there is something to catch up with, and how much came of it. */
let missing: { until: number; came: number } | null = null;
/** What was said and is not shown yet. */
let arrived: Message[] = [];
/** Whether what was said is followed, so that a lost connection leaves something to catch up with. */
let begun = false;
let showing: ReturnType<typeof setTimeout> | undefined;
let shownAt = 0;
let asking: ReturnType<typeof setTimeout> | undefined;
let clearing: ReturnType<typeof setTimeout> | undefined;

export function tell(text: string): void {
  notice.value = text;
  clearTimeout(clearing);
  clearing = setTimeout(() => {
    notice.value = "";
  }, NOTICE_MS);
}

/** Do something at the hub, and tell what went wrong; returns whether it went well. */
export async function attempt(work: () => Promise<unknown>, done = ""): Promise<boolean> {
  try {
    await work();
    if (done) tell(done);
    return true;
  } catch (error) {
    tell(error instanceof Error ? error.message : String(error));
    return false;
  }
}

// Getting in and out.

async function session(method: string, body?: unknown): Promise<Visitor | null> {
  const init: RequestInit = { method, credentials: "same-origin" };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "content-type": "application/json" };
  }
  const answer = await fetch("/api/session", init);
  if (answer.ok) return answer.status === 204 ? null : ((await answer.json()) as Visitor);
  if (answer.status === 401 && method === "GET") return null;
  throw new Error(((await answer.json()) as { error: string }).error);
}

export async function look(): Promise<void> {
  visitor.value = await session("GET");
  if (visitor.value) hub.open();
}

export async function enter(token: string): Promise<void> {
  visitor.value = await session("POST", { token });
  hub.link.value = "opening";
  hub.open();
}

export async function leave(): Promise<void> {
  await session("DELETE");
  // Who came in by a code has a cookie of that login, too.
  await logOut().catch(() => undefined);
  hub.close();
  location.reload();
}

// What the hub tells.

hub.opened = () => void begin().catch(() => hub.again());
hub.said = (said) => {
  const known = newest();
  const fresh = said.filter((message) => message.offset > known);
  arrived.push(...fresh);
  if (missing) {
    const { until } = missing;
    missing.came += fresh.filter((message) => message.offset <= until).length;
    if (newest() >= until) reunited();
  }
  if (fresh.length) showing ??= setTimeout(show, Math.max(0, shownAt + SHOW_MS - Date.now()));
};

/** The offset of the last message that came. */
const newest = (): number => (arrived.at(-1) ?? messages.value.at(-1))?.offset ?? -1;

function show(): void {
  const fresh = arrived;
  arrived = [];
  showing = undefined;
  shownAt = Date.now();
  keep([...messages.value, ...fresh]);
  if (fresh.some((message) => message.target.startsWith("obj:"))) {
    asking ??= setTimeout(() => {
      asking = undefined;
      void attempt(readObjectives);
    }, OBJECTIVES_MS);
  }
}

const weights = new WeakMap<Message, number>();

/** How many characters a message has, roughly. */
function weigh(message: Message): number {
  let weight = weights.get(message);
  if (weight === undefined) {
    weight = message.body.length + (message.data ? JSON.stringify(message.data).length : 0);
    weights.set(message, weight);
  }
  return weight;
}

/** Keep the newest of these, as far as there is room. */
function keep(all: readonly Message[]): void {
  let first = all.length;
  let weight = 0;
  for (let index = all.length - 1; index >= 0 && all.length - index <= KEPT_MAX; index--) {
    weight += weigh(all[index] as Message);
    if (weight > KEPT_CHARACTERS_MAX && first < all.length) break;
    first = index;
  }
  batch(() => {
    if (first > 0) whole.value = false;
    messages.value = first > 0 ? all.slice(first) : all;
  });
}

async function begin(): Promise<void> {
  const again = begun;
  missing = null;
  // Permissions may have changed since somebody looked.
  if (again) visitor.value = await session("GET");
  const everything = seesAll.value;
  const { messages: page } = await hub.ask("read_history", { limit: again ? 1 : FIRST_PAGE, everything });
  if (again) missing = { until: page[0]?.offset ?? -1, came: 0 };
  else
    batch(() => {
      arrived = [];
      messages.value = page.toReversed();
      whole.value = page.length === 0;
    });
  begun = true;
  if (missing && newest() >= missing.until) reunited();
  await Promise.all([hub.ask("tail", { after: newest(), everything }), readRoster(), readObjectives()]);
}

/** Everything that was said while the connection was lost is here. */
function reunited(): void {
  const came = missing?.came ?? 0;
  missing = null;
  tell(came ? `Connected again; ${came} ${came === 1 ? "message" : "messages"} came meanwhile.` : "Connected again; nothing was missed.");
}

/** Read what was said before the first message that is here. */
export async function readOlder(): Promise<void> {
  const first = messages.value[0];
  if (!first || whole.value) return;
  const everything = seesAll.value;
  const { messages: older } = await hub.ask("read_history", { before: first.offset, limit: FIRST_PAGE, everything });
  batch(() => {
    whole.value = older.length === 0;
    if (messages.value[0] === first) messages.value = [...older.toReversed(), ...messages.value];
  });
}

export const stewards = computed(() => visitor.value?.kind === "human" || may("members.manage"));

export async function readRoster(): Promise<void> {
  // Who could know a moment ago may be told no more.
  const paused = stewards.value ? hub.ask("pauses", {}).catch(() => null) : null;
  const [roster, list, standing] = await Promise.all([hub.ask("members", {}), hub.ask("channels", {}), paused]);
  const me = roster.members.find((member) => member.name === visitor.value?.member);
  if (me && visitor.value && String(me.permissions) !== String(visitor.value.permissions)) {
    // What one may see has changed, so all of it is read again.
    visitor.value = { ...visitor.value, permissions: me.permissions };
    begun = false;
    void begin().catch(() => hub.again());
  }
  batch(() => {
    pauses.value = standing?.pauses ?? [];
    members.value = roster.members.toSorted((one, other) => one.name.localeCompare(other.name));
    channels.value = list.channels.toSorted((one, other) => one.name.localeCompare(other.name));
  });
}

export async function readObjectives(): Promise<void> {
  objectives.value = (await hub.ask("objectives", {})).objectives;
}

setInterval(() => {
  now.value = Date.now();
  if (hub.link.value === "live" && !document.hidden) void attempt(readRoster);
}, ROSTER_MS);

// A member who was removed, or whose session was revoked, is shown the door.
effect(() => {
  // Whoever comes in next finds nothing of what was shown before.
  if (hub.link.value === "out" && visitor.peek()) location.reload();
});
