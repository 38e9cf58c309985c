// Acknowledges the messages that a person reads here, so that the sender's receipt shows it.
import { placeOf, type Place } from "./talk.ts";
import { hub, visible, visitor } from "./state.ts";

const PAGE = 200;
const PAGES_MAX = 10;
const REST_MS = 2000;
const EVIDENCE = "its conversation was read to the end in the console";

/** Places whose end was visible, with the offset of the last visible message. */
const looked = new Map<Place, number>();
let working = false;

/** Key up to which everything at a place is acknowledged. After a lost connection, it is read again. */
const done = new Map<string, number>();
hub.link.subscribe((link) => {
  if (link === "live") begin();
  else done.clear();
});
visible.subscribe(() => begin());

/** Acknowledge what was delivered to the viewer at a place, up to an offset. */
export function lookedAt(place: Place, through: number): void {
  // A person who uses the login of an agent takes nothing out of the agent's inbox.
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
    // A request that the hub refused is not repeated. A request that the connection lost is.
    const over = await pass(place, through).catch(() => hub.link.value === "live");
    if (!over) note(place, through);
    await new Promise((rested) => setTimeout(rested, REST_MS));
  }
  working = false;
}

/** Acknowledge one part of the inbox. Return true at its end; a long inbox takes several calls. */
async function pass(place: Place, through: number): Promise<boolean> {
  const me = visitor.value?.member ?? "";
  const mine = `${me} ${place}`;
  for (let page = 0; page < PAGES_MAX; page++) {
    const inbox = await hub.ask("fetch", { after: done.get(mine) ?? 0, limit: PAGE });
    const here = inbox.items.filter(({ message }) => placeOf(message, me) === place);
    const shown = here.filter(({ message }) => message.offset <= through);
    if (shown.length)
      hub.tell("ack", { keys: shown.map(({ key }): [number, number] => [key, key]), evidence: EVIDENCE });
    // Only the newest messages were not visible yet.
    if (shown.length < here.length) return true;
    done.set(mine, inbox.through);
    if (inbox.complete) return true;
  }
  return false;
}
