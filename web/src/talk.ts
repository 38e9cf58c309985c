// Which conversation a message belongs to, as its viewer sees it.
import type { Message } from "./hub.ts";
import { plain } from "./plain.ts";
import { shortPlace } from "./short.ts";
import { channels, may, objectives, visitor } from "./state.ts";

/** A place of talk: `#channel`, `obj:<id>`, `@member`, or `a ↔ b` for what two others say to each other. */
export type Place = string;

export const GENERAL: Place = "#general";
const BETWEEN = " ↔ ";

/** Places that were worked out: it is asked for every message whenever something is said. */
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

/** What the hub calls the conversations at a place: those of two members, a channel's, an objective's. */
export function conversationsAt(place: Place, viewer: string): readonly string[] {
  // What is for everybody is said to `*` by most, and to the channel by some.
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

/** How one writes there; nothing, where only two others talk. */
export const targetOf = (place: Place): string | null => (place.includes(BETWEEN) ? null : place);

/** Whether the viewer is one of those who talk there, to whom the hub gives the files. */
export function hasPart(place: Place): boolean {
  const me = visitor.value?.member ?? "";
  if (may("members.manage") || place === GENERAL) return true;
  if (place.startsWith("#"))
    return channels.value.some((one) => `#${one.name}` === place && one.subscribers.includes(me));
  if (!place.startsWith("obj:")) return !place.includes(BETWEEN);
  const objective = objectives.value.find((one) => `obj:${one.id}` === place);
  return !!objective && [objective.assignee, objective.originator, ...objective.watchers].includes(me);
}

/** A place as people call it. */
export function nameOf(place: Place): string {
  if (!place.startsWith("obj:")) return place;
  const objective = objectives.value.find((one) => `obj:${one.id}` === place);
  return objective ? objective.title : shortPlace(place);
}

/** What happened, on one line, if a message tells that an objective changed or if its content was redacted. */
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
  const words = more.filter((one): one is string => typeof one === "string").map((one) => plain(one.slice(0, 300)));
  return `objective ${plain(String(said("kind"))).replace("_", " ")}${words.length ? `: ${words.join(", ")}` : ""}`;
}

/** The place of a conversation that the hub names; nothing for a thread, which may be in several places. */
export function placeNamed(conversation: string, viewer: string): Place | null {
  if (conversation === "*") return GENERAL;
  if (conversation.startsWith("thread:")) return null;
  if (!conversation.startsWith("@")) return conversation;
  const names = conversation.split("+").map((name) => name.slice(1));
  const others = names.filter((name) => name !== viewer);
  return others.length === 1 ? `@${others[0]}` : names.toSorted().join(BETWEEN);
}
