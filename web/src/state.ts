// What the console knows: who looks, who and what there is, and what was said. Pages read signals; nothing else changes them.
import { batch, computed, effect, signal } from "@preact/signals";
import { type Channel, Hub, type Member, type Message, type Objective, type Pause } from "./hub.ts";

export interface Visitor {
  member: string;
  kind: string;
  permissions: readonly string[];
  version: string;
}

/** Messages that are kept in the page; older ones are read again when they are scrolled to. */
export const KEPT_MAX = 20_000;
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

let caughtUp: number | null = null;
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
  await fetch("/session/logout", { method: "POST", credentials: "same-origin" });
  hub.close();
  location.reload();
}

// What the hub tells.

hub.opened = () => void begin();
hub.said = (said) => {
  const known = messages.value.at(-1)?.offset ?? -1;
  const fresh = said.filter((message) => message.offset > known);
  if (caughtUp !== null) caughtUp += fresh.length;
  const all = [...messages.value, ...fresh];
  const cut = all.length - KEPT_MAX;
  batch(() => {
    if (cut > 0) whole.value = false;
    messages.value = cut > 0 ? all.slice(cut) : all;
  });
  if (fresh.some((message) => message.target.startsWith("obj:"))) void readObjectives();
};

async function begin(): Promise<void> {
  const again = messages.value.length > 0;
  const everything = seesAll.value;
  caughtUp = again ? 0 : null;
  if (!again) {
    const { messages: newest } = await hub.ask("read_history", { limit: FIRST_PAGE, everything });
    batch(() => {
      messages.value = newest.toReversed();
      whole.value = newest.length === 0;
    });
  }
  const after = messages.value.at(-1)?.offset ?? -1;
  await Promise.all([hub.ask("tail", { after, everything }), readRoster(), readObjectives()]);
  if (again) {
    setTimeout(() => {
      tell(caughtUp ? `Connected again; ${caughtUp} messages came meanwhile.` : "Connected again; nothing was missed.");
      caughtUp = null;
    }, 300);
  }
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
  const paused = stewards.value ? hub.ask("pauses", {}) : null;
  const [roster, list, standing] = await Promise.all([hub.ask("members", {}), hub.ask("channels", {}), paused]);
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
  if (hub.link.value === "out" && visitor.peek()) visitor.value = null;
});
