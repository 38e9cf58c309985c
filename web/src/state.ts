// State of the console: the viewer, the members, the objectives and the messages. Pages read these signals; only this
// module sets them.
import { batch, computed, effect, signal } from "@preact/signals";
import { type AnswerOf, type Channel, Hub, type Member, type Message, type Objective, type Pause } from "./hub.ts";
import type { components } from "./shapes.d.ts";

export type Visitor = components["schemas"]["Visitor"];

/** Messages that are kept in the page, and their characters; older ones are read again when they are scrolled to. */
export const KEPT_MAX = 20_000;
const KEPT_CHARACTERS_MAX = 50_000_000;
/** Most messages, with those that were scrolled back to. */
export const ROWS_MAX = 3 * KEPT_MAX;
/** Shortest time between two drawings of new messages, because the hub sends some twenty times a second. */
const SHOW_MS = 150;
const OBJECTIVES_MS = 1000;
const FIRST_PAGE = 200;
const MINE_MAX = 1000;
const ROSTER_MS = 5000;
/** Time without an answer after which the connection to the hub counts as dead. */
const PATIENCE_MS = 20_000;
/** Most pages of open objectives that are read. Of ended objectives, only the newest page is read. */
const OBJECTIVE_PAGES_MAX = 20;
const NOTICE_MS = 6000;

export const hub = new Hub();
export const visitor = signal<Visitor | null | undefined>(undefined);
export const members = signal<readonly Member[]>([]);
export const channels = signal<readonly Channel[]>([]);
export const objectives = signal<readonly Objective[]>([]);
/** True if the hub has more, older objectives that ended. */
export const curtailed = signal(false);
/** Conversations that are paused because agents looped in them. Empty for a viewer who may not see them. */
export const pauses = signal<readonly Pause[]>([]);
/** The messages that the viewer may see, in the order of the log, without a gap. */
export const messages = signal<readonly Message[]>([]);
/** Older messages to or from the viewer, or in its channels. A viewer who sees everything has others in between. */
export const mine = signal<readonly Message[]>([]);
/** True if the log has nothing before the first message. */
export const whole = signal(false);
/** A sentence that the page shows for a short time. */
export const notice = signal("");
export const now = signal(Date.now());
/** True if the page can be seen. Nobody has looked at messages that come to a hidden tab. */
export const visible = signal(!document.hidden);
document.addEventListener("visibilitychange", () => {
  visible.value = !document.hidden;
});

export const may = (permission: string): boolean => visitor.value?.permissions.includes(permission) ?? false;
export const seesAll = computed(() => may("log.read"));
/** The viewer's permissions as one word. Data that was read with other permissions is not shown with these. */
export const permissions = computed(() => String(visitor.value?.permissions));
/** The protocols of the messages that the page has. */
export const protocols = computed(() => [...new Set(messages.value.map(({ protocol }) => protocol))].toSorted());
export const byName = computed(() => new Map(members.value.map((member) => [member.name, member])));

/** After the connection was lost: up to which offset there is something to catch up with, and how much came of it. */
let missing: { until: number; came: number } | null = null;
/** New messages that are not shown yet. */
let arrived: Message[] = [];
/** True if messages are followed, so that a lost connection leaves a gap. */
let begun = false;
/** True if there was a connection before. */
let connected = false;
/** Number of messages for which there is room. */
let room = KEPT_MAX;
let older: Promise<void> | null = null;
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

// Login and logout.

async function session(method: string, body?: unknown, path = "/api/session", token = ""): Promise<Visitor | null> {
  const init: RequestInit = { method, credentials: "same-origin" };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { "content-type": "application/json" };
    // A token may belong to another room than the cookie. Only this header leads to that room.
    if (/^[\x21-\x7e]+$/.test(token)) init.headers = { ...init.headers, authorization: `Bearer ${token}` };
  }
  const answer = await fetch(path, init);
  if (answer.ok) return answer.status === 204 ? null : ((await answer.json()) as Visitor);
  if (answer.status === 401 && method === "GET") return null;
  throw new Error(((await answer.json()) as { error: string }).error);
}

export async function look(): Promise<void> {
  visitor.value = await session("GET");
  if (visitor.value) hub.open();
}

function come(found: Visitor | null): void {
  visitor.value = found;
  hub.link.value = "opening";
  hub.open();
}

export const enter = async (token: string): Promise<void> => come(await session("POST", { token }, undefined, token));

/** Come in with a code of an authenticator app; without a name it must be right for exactly one member. */
export const enterByCode = async (code: string, member: string): Promise<void> =>
  come(await session("POST", member ? { code, member } : { code }, "/api/session/code"));

export async function leave(): Promise<void> {
  await session("DELETE");
  hub.close();
  location.reload();
}

// Notices of the hub.

hub.opened = () => void arrive().catch(() => hub.again());
hub.said = (said) => {
  const known = newest();
  const fresh = said.filter((message) => message.offset > known);
  if (fresh.length < said.length) replace(said);
  arrived.push(...fresh);
  if (missing) {
    const { until } = missing;
    missing.came += fresh.filter((message) => message.offset <= until).length;
    if (newest() >= until) reunited();
  }
  if (fresh.length) showing ??= setTimeout(show, Math.max(0, shownAt + SHOW_MS - Date.now()));
};

/** Show messages that came again as they are now: their content was redacted. */
function replace(again: readonly Message[]): void {
  const current = new Map(again.map((message) => [message.id, message]));
  arrived = arrived.map((message) => current.get(message.id) ?? message);
  if (messages.value.some((message) => current.has(message.id)))
    messages.value = messages.value.map((message) => current.get(message.id) ?? message);
}

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

/** Return the size of a message in characters, roughly. */
function weigh(message: Message): number {
  let weight = weights.get(message);
  if (weight === undefined) {
    weight = message.body.length + (message.data ? JSON.stringify(message.data).length : 0);
    weights.set(message, weight);
  }
  return weight;
}

/** Return the index of the first of the newest messages for which there is room. */
export function firstOf(all: readonly Message[], max: number): number {
  let first = all.length;
  let weight = 0;
  for (let index = all.length - 1; index >= 0 && all.length - index <= max; index--) {
    weight += weigh(all[index] as Message);
    if (weight > KEPT_CHARACTERS_MAX && first < all.length) break;
    first = index;
  }
  return first;
}

/** Keep the newest of these, as far as there is room; of the others, what concerns the viewer is remembered a little longer. */
function keep(all: readonly Message[]): void {
  const first = firstOf(all, room);
  const me = visitor.value?.member ?? "";
  const concerns = ({ target, from }: Message) => !target.startsWith("@") || target === `@${me}` || from === me;
  const gone = seesAll.value ? all.slice(0, first).filter(concerns) : [];
  batch(() => {
    if (first > 0) whole.value = false;
    messages.value = first > 0 ? all.slice(first) : all;
    if (gone.length) {
      const since = gone[0]?.offset ?? 0;
      mine.value = [...mine.value.filter((message) => message.offset < since), ...gone].slice(-MINE_MAX);
    }
  });
}

/** Release the room of the messages that were scrolled back to. */
export function settle(): void {
  room = KEPT_MAX;
}

/** Nothing of what was shown may be shown any more. */
function forget(): void {
  begun = false;
  arrived = [];
  settle();
  batch(() => {
    messages.value = [];
    mine.value = [];
    whole.value = false;
  });
}

/** The connection is there; when it was lost, who looks and what they may see can have changed meanwhile. */
async function arrive(): Promise<void> {
  if (connected) {
    const found = await session("GET");
    if (!found || found.member !== visitor.value?.member) {
      location.reload();
      return;
    }
    batch(() => {
      if (String(found.permissions) !== permissions.value) forget();
      visitor.value = found;
    });
  }
  connected = true;
  await begin();
}

async function begin(): Promise<void> {
  const again = begun;
  missing = null;
  const everything = seesAll.value;
  const [{ messages: page }, own] = await Promise.all([
    hub.ask("read_history", { limit: again ? 1 : FIRST_PAGE, everything }),
    everything && !again ? hub.ask("read_history", { limit: FIRST_PAGE }) : null,
  ]);
  if (again) missing = { until: page[0]?.offset ?? -1, came: 0 };
  else
    batch(() => {
      arrived = [];
      messages.value = page.toReversed();
      mine.value = own?.messages.toReversed() ?? [];
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
  tell(
    came
      ? `Connected again; ${came} ${came === 1 ? "message" : "messages"} came meanwhile.`
      : "Connected again; nothing was missed.",
  );
}

/** Read what was said before the first message that is here. */
export function readOlder(): Promise<void> {
  older ??= lengthen().finally(() => {
    older = null;
  });
  return older;
}

async function lengthen(): Promise<void> {
  const first = messages.value[0];
  if (!first || whole.value || isFull(messages.value)) return;
  const page = await readBefore(first);
  if (messages.value[0] !== first) return;
  const longer = [...page, ...messages.value];
  // Room for these, and for messages that come while the person reads them.
  room = Math.min(ROWS_MAX, longer.length + KEPT_MAX);
  batch(() => {
    whole.value = page.length === 0;
    messages.value = longer;
  });
}

/** Return the messages before a message, the oldest first. */
export async function readBefore({ offset }: Message): Promise<readonly Message[]> {
  const page = await hub.ask("read_history", { before: offset, limit: FIRST_PAGE, everything: seesAll.value });
  return page.messages.toReversed();
}

/** True if there is no room for more messages before these. Then show a sentence about it. */
export function isFull(rows: readonly Message[]): boolean {
  const full = rows.length >= ROWS_MAX || rows.reduce((sum, message) => sum + weigh(message), 0) >= KEPT_CHARACTERS_MAX;
  if (full) tell("A page holds no more than this. Search finds what is older.");
  return full;
}

export const stewards = computed(() => visitor.value?.kind === "human" || may("members.manage"));

export async function readRoster(): Promise<void> {
  // The viewer may have lost the permission to list pauses.
  const paused = stewards.value ? hub.ask("pauses", {}).catch(() => null) : null;
  const [roster, list, standing] = await Promise.all([hub.ask("members", {}), hub.ask("channels", {}), paused]);
  const me = roster.members.find((member) => member.name === visitor.value?.member);
  if (me && visitor.value && String(me.permissions) !== String(visitor.value.permissions)) {
    // The viewer's permissions have changed, so everything is read again.
    const changed = { ...visitor.value, permissions: me.permissions };
    batch(() => {
      forget();
      visitor.value = changed;
    });
    void begin().catch(() => hub.again());
  }
  batch(() => {
    pauses.value = standing?.pauses ?? [];
    members.value = roster.members.toSorted((one, other) => one.name.localeCompare(other.name));
    channels.value = list.channels.toSorted((one, other) => one.name.localeCompare(other.name));
  });
}

export async function readObjectives(): Promise<void> {
  const found = new Map<string, Objective>();
  let before: string | null = null;
  for (let count = 0; count < OBJECTIVE_PAGES_MAX; count++) {
    const page: AnswerOf<"objectives"> = await hub.ask("objectives", { statuses: ["blocked", "active"], before });
    for (const one of page.objectives) found.set(one.id, one);
    before = page.objectives.at(-1)?.id ?? null;
    if (page.complete || before === null) break;
  }
  // Read last, so that an objective that ends in between is in it.
  const over = await hub.ask("objectives", { statuses: ["done", "cancelled"] });
  for (const one of over.objectives) found.set(one.id, one);
  batch(() => {
    curtailed.value = !over.complete;
    objectives.value = [...found.values()];
  });
}

/** Time at which the expected roster was requested; 0 if none is expected. */
let rosterSince = 0;
setInterval(() => {
  now.value = Date.now();
  if (hub.link.value !== "live" || document.hidden) return;
  if (rosterSince) {
    // A connection can be dead although the browser reports no end of it.
    if (Date.now() - rosterSince > PATIENCE_MS) hub.again();
    return;
  }
  rosterSince = Date.now();
  void attempt(readRoster).finally(() => {
    rosterSince = 0;
  });
}, ROSTER_MS);

// If a member was removed, or its session was revoked, the page starts anew at the login.
effect(() => {
  // The next person to log in finds nothing of the old page.
  if (hub.link.value === "out" && visitor.peek()) location.reload();
});
