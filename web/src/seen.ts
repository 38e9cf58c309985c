// What a person reads here was delivered to them: its sender's receipt shall say so.
import { placeOf, type Place } from "./talk.ts";
import { hub, visible, visitor } from "./state.ts";

const PAGE = 200;
const PAGES_MAX = 10;
const REST_MS = 2000;
const EVIDENCE = "its conversation was read to the end in the console";

/** Places whose end was in sight, and up to which offset. */
const looked = new Map<Place, number>();
let working = false;

/** Up to which delivery everything at a place is acknowledged. What a lost connection took along is looked at again. */
const done = new Map<string, number>();
hub.link.subscribe((link) => {
  if (link === "live") begin();
  else done.clear();
});
visible.subscribe(() => begin());

/** Acknowledge what was delivered to the viewer at a place, up to an offset. */
export function lookedAt(place: Place, through: number): void {
  // Who looks over an agent's shoulder takes nothing out of its inbox.
  if (visitor.value?.kind !== "human") return;
  note(place, through);
  begin();
}

function note(place: Place, through: number): void {
  looked.set(place, Math.max(through, looked.get(place) ?? -1));
}

function begin(): void {
  if (looked.size && !working) void work();
}

/** One pass at a time with a rest after each, so that a fast conversation costs little. */
async function work(): Promise<void> {
  working = true;
  while (hub.link.value === "live" && visible.value) {
    const [next] = looked;
    if (!next) break;
    const [place, through] = next;
    looked.delete(place);
    // What the hub refuses is not asked again; what the connection lost is.
    const over = await pass(place, through).catch(() => hub.link.value === "live");
    if (!over) note(place, through);
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
    if (shown.length)
      hub.tell("ack", { keys: shown.map(({ key }): [number, number] => [key, key]), evidence: EVIDENCE });
    // Those that were not looked at yet are the newest ones.
    if (shown.length < here.length) return true;
    done.set(mine, inbox.through);
    if (inbox.complete) return true;
  }
  return false;
}
