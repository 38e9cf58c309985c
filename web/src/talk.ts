// The conversation of a message, as the viewer sees it.
import type { Message } from "./hub.ts";
import { oneLine, plain } from "./plain.ts";
import { shortId, shortPlace } from "./short.ts";
import { channels, may, objectives, visitor } from "./state.ts";

/**
 * A place of talk: `#channel`, `obj:<id>`, `@member`, `a ↔ b` for what two others say to each other, or `thread:<id>`
 * for a thread, whose messages are at other places too.
 */
export type Place = string;

export const GENERAL: Place = "#general";
export const BETWEEN = " ↔ ";
const THREAD = "thread:";

/** Cache of places, because the page needs the place of every message at each new one. */
let known = new WeakMap<Message, Place>();
let knownFor = "";

export function placeOf(message: Message, viewer: string): Place {
  if (viewer !== knownFor) {
    known = new WeakMap();
    knownFor = viewer;
  }
  let place = known.get(message);
  if (place === undefined) {
    place = work(message, viewer);
    known.set(message, place);
  }
  return place;
}

function work({ target, from }: Message, viewer: string): Place {
  if (target === "*") return GENERAL;
  if (!target.startsWith("@")) return target;
  const to = target.slice(1);
  if (from === viewer) return target;
  if (to === viewer) return `@${from}`;
  return [from, to].toSorted().join(BETWEEN);
}

/** Return the hub's names of the conversations at a place: of two members, of a channel, of an objective. */
export function conversationsAt(place: Place, viewer: string): readonly string[] {
  // Most write to everybody with `*`, and some with the name of the channel.
  if (place === GENERAL) return ["*", GENERAL];
  if (place.startsWith("@")) return [`${place}+@${viewer}`];
  return place.includes(BETWEEN)
    ? [
        place
          .split(BETWEEN)
          .map((name) => `@${name}`)
          .join("+"),
      ]
    : [place];
}

/** Return the target for a message to a place; `null` for a thread, and if only two others talk there. */
export const targetOf = (place: Place): string | null =>
  place.includes(BETWEEN) || place.startsWith(THREAD) ? null : place;

/** Return the id of the thread that is a place; `null` for any other place. */
export const threadOf = (place: Place): string | null => (place.startsWith(THREAD) ? place.slice(THREAD.length) : null);

/** Return the place of a thread. */
export const threadPlace = (thread: string): Place => `${THREAD}${thread}`;

/** True if the viewer subscribed to a channel, or has work in an objective. The hub delivers what is said there. */
export function isWithin(place: Place): boolean {
  const me = visitor.value?.member ?? "";
  if (place.startsWith("#"))
    return channels.value.some((one) => `#${one.name}` === place && one.subscribers.includes(me));
  const objective = objectives.value.find((one) => `obj:${one.id}` === place);
  return !!objective && [objective.assignee, objective.originator, ...objective.watchers].includes(me);
}

/** True if the viewer takes part in the conversation. Then the hub gives it the files. */
export function hasPart(place: Place): boolean {
  if (may("members.manage") || place === GENERAL) return true;
  return /^(#|obj:)/.test(place) ? isWithin(place) : !place.includes(BETWEEN);
}

/** A place as people call it. */
export function nameOf(place: Place): string {
  const thread = threadOf(place);
  if (thread !== null) return `Thread ${shortId(thread)}`;
  if (!place.startsWith("obj:")) return place;
  const objective = objectives.value.find((one) => `obj:${one.id}` === place);
  return objective ? objective.title : shortPlace(place);
}

/** Return one line about a message that reports a change of an objective, or whose content was redacted. */
export function happening(message: Message): string | null {
  const event = message.data?.["event"];
  if (event === "redacted" && typeof message.data?.["row"] === "number") return plain(message.body);
  if (message.kind !== "event" || !message.target.startsWith("obj:") || typeof event !== "object" || event === null)
    return null;
  const said = (name: string) => (event as Record<string, unknown>)[name];
  const more = [
    said("blockReason"),
    said("result"),
    said("reason"),
    said("toAssignee"),
    said("note"),
    said("name"),
    said("outcome"),
  ];
  const words = more.filter((one): one is string => typeof one === "string").map((one) => oneLine(one, 300));
  return `objective ${plain(String(said("kind"))).replace("_", " ")}${words.length ? `: ${words.join(", ")}` : ""}`;
}

/** The place of a conversation that the hub names. */
export function placeNamed(conversation: string, viewer: string): Place {
  if (conversation === "*") return GENERAL;
  if (!conversation.startsWith("@")) return conversation;
  const names = conversation.split("+").map((name) => name.slice(1));
  const others = names.filter((name) => name !== viewer);
  return others.length === 1 ? `@${others[0]}` : names.toSorted().join(BETWEEN);
}
