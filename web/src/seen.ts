// What a person looks at here was delivered to them: its sender's receipt shall say so.
import { placeOf, type Place } from "./talk.ts";
import { hub, visitor } from "./state.ts";

const PAGE = 200;
const PAGES_MAX = 10;
const REST_MS = 2000;
const EVIDENCE = "looked at in the console";

let looking: { place: Place; through: number } | null = null;
let working = false;

/** Up to which delivery everything at a place is acknowledged. What a lost connection took along is looked at again. */
const done = new Map<string, number>();
hub.link.subscribe((link) => {
  if (link !== "live") done.clear();
});

/** Acknowledge what was delivered to the viewer at a place, up to an offset. */
export function lookedAt(place: Place, through: number): void {
  looking = { place, through };
  if (!working) void work();
}

/** One pass at a time with a rest after each, so that a fast conversation costs little. */
async function work(): Promise<void> {
  working = true;
  while (looking && hub.link.value === "live" && !document.hidden) {
    const wanted = looking;
    looking = null;
    // What the connection lost meanwhile is acknowledged when one looks again.
    const whole = await pass(wanted.place, wanted.through).catch(() => true);
    if (!whole) looking ??= wanted;
    await new Promise((rested) => setTimeout(rested, REST_MS));
  }
  working = false;
}

/** Says whether it came to the end; a long inbox takes several passes. */
async function pass(place: Place, through: number): Promise<boolean> {
  const me = visitor.value?.member ?? "";
  const mine = `${me} ${place}`;
  for (let page = 0; page < PAGES_MAX; page++) {
    const inbox = await hub.ask("fetch", { after: done.get(mine) ?? 0, limit: PAGE });
    const here = inbox.items.filter(({ message }) => placeOf(message, me) === place);
    const shown = here.filter(({ message }) => message.offset <= through);
    if (shown.length) hub.tell("ack", { keys: shown.map(({ key }): [number, number] => [key, key]), evidence: EVIDENCE });
    // Those that were not looked at yet are the newest ones.
    if (shown.length < here.length) return true;
    done.set(mine, inbox.through);
    if (inbox.complete) return true;
  }
  return false;
}
