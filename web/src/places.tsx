// Places of talk: all of them, the last message at each, and what the viewer has not seen there.
import { computed, signal } from "@preact/signals";
import type { Message } from "./hub.ts";
import { unseenAt, unseenCount } from "./inbox.ts";
import { plain } from "./plain.ts";
import { address, go, where } from "./route.ts";
import { channels, curtailed, members, messages, mine, objectives, visitor } from "./state.ts";
import { GENERAL, type Place, nameOf, placeOf } from "./talk.ts";

/** The last message at each place, and the number of messages there that the viewer has not seen. */
export const latest = computed(() => {
  const me = visitor.value?.member ?? "";
  const found = new Map<Place, { last: Message; unread: number }>();
  const start = messages.value[0]?.offset ?? Infinity;
  for (const message of [...mine.value.filter((one) => one.offset < start), ...messages.value]) {
    const place = placeOf(message, me);
    const before = found.get(place);
    if (before) before.last = message;
    else found.set(place, { last: message, unread: unseenAt(place).size });
  }
  return found;
});

export const unread = computed(unseenCount);

/** Every place that there is. */
export const places = computed<readonly Place[]>(() => {
  const me = visitor.value?.member;
  const all = new Set<Place>([GENERAL, ...channels.value.map((channel) => `#${channel.name}`)]);
  for (const objective of objectives.value) all.add(`obj:${objective.id}`);
  for (const member of members.value) if (member.name !== me) all.add(`@${member.name}`);
  for (const place of latest.value.keys()) all.add(place);
  return [...all];
});

const GROUPS: readonly [string, (place: Place) => boolean][] = [
  ["Channels", (place) => place.startsWith("#")],
  ["Direct", (place) => place.startsWith("@")],
  ["Objectives", (place) => place.startsWith("obj:")],
  ["Between others", (place) => place.includes(" ↔ ")],
];

/** Objectives that ended. Their places are shown only while something there is unread. */
const ended = computed(
  () =>
    new Set(
      objectives.value.flatMap(({ id, status }) => (status === "done" || status === "cancelled" ? [`obj:${id}`] : [])),
    ),
);

interface Group {
  title: string;
  found: readonly Place[];
  /** Number of places of ended objectives that are left out. */
  hidden: number;
}

/** Return the groups of places to choose from, those where something was said last first, while the viewer is at `here`. */
export function groupsAt(here: Place): readonly Group[] {
  const offset = (place: Place) => latest.value.get(place)?.last.offset ?? -1;
  return GROUPS.flatMap(([title, belongs]) => {
    const all = places.value.filter(belongs);
    const found = all
      .filter((place) => place === here || !ended.value.has(place) || unseenAt(place).size > 0)
      .toSorted((one, other) => offset(other) - offset(one));
    return all.length ? [{ title, found, hidden: all.length - found.length }] : [];
  });
}

const FOLDED = "folded";

/** Titles of the groups that the person folded in this browser. */
const folded = signal<ReadonlySet<string>>(new Set(localStorage.getItem(FOLDED)?.split(",")));

function fold(title: string, open: boolean): void {
  if (open !== folded.value.has(title)) return;
  const others = [...folded.value].filter((one) => one !== title);
  folded.value = new Set(open ? others : [...others, title]);
  localStorage.setItem(FOLDED, [...folded.value].join(","));
}

const Unread = ({ count }: { count: number }) => (
  <span class="badge">
    {count}
    <span class="sr"> unread</span>
  </span>
);

export function Places() {
  const here = where.value.page === "talk" ? where.value.of || GENERAL : "";
  return (
    <nav class="places" aria-label="Conversations">
      {groupsAt(here).map(({ title, found, hidden }) => {
        const isFolded = folded.value.has(title);
        const count = found.reduce((sum, place) => sum + unseenAt(place).size, 0);
        return (
          <details key={title} open={!isFolded} onToggle={(event) => fold(title, event.currentTarget.open)}>
            <summary>
              <h2>{title}</h2>
              {isFolded && count > 0 && <Unread count={count} />}
            </summary>
            <ul>
              {found.map((place) => (
                <One key={place} place={place} here={here} />
              ))}
            </ul>
            {hidden > 0 && (
              <a class="count" href={address("objectives")}>
                {hidden.toLocaleString()} ended
              </a>
            )}
          </details>
        );
      })}
    </nav>
  );
}

function One({ place, here }: { place: Place; here: Place }) {
  const count = unseenAt(place).size;
  const name = plain(nameOf(place));
  return (
    <li>
      <a href={address("talk", place)} aria-current={place === here ? "page" : undefined} title={name}>
        <span class="name">{name}</span>
        {count > 0 && place !== here && <Unread count={count} />}
      </a>
    </li>
  );
}

/** The places, where there is no room for them at the side. */
export function Choice({ here }: { here: Place }) {
  const groups = groupsAt(here);
  return (
    <label class="choice">
      <span class="sr">Conversation</span>
      <select value={here} onChange={(event) => go("talk", event.currentTarget.value)}>
        {groups.every(({ found }) => !found.includes(here)) && <option value={here}>{plain(nameOf(here))}</option>}
        {groups.map(({ title, found }) => (
          <optgroup key={title} label={title}>
            {found.map((place) => (
              <option key={place} value={place}>
                {plain(nameOf(place))}
                {unseenAt(place).size && place !== here ? ` (${unseenAt(place).size} unread)` : ""}
              </option>
            ))}
          </optgroup>
        ))}
      </select>
    </label>
  );
}

/** Return a sentence about a place that the hub does not have; null if it has it, or if that is not known. */
export function unknownAt(place: Place): string | null {
  // Nothing is known before the roster was read.
  if (!members.value.length) return null;
  const name = place.slice(1);
  const isName = (one: { name: string }) => one.name.toLowerCase() === name.toLowerCase();
  if (place.startsWith("@")) return members.value.some(isName) ? null : `No member is called “${plain(name)}”.`;
  if (place.startsWith("#"))
    return place === GENERAL || channels.value.some(isName) ? null : `There is no channel “${plain(name)}”.`;
  if (place.startsWith("obj:"))
    return !objectives.value.length || curtailed.value || objectives.value.some((one) => `obj:${one.id}` === place)
      ? null
      : "There is no such objective that you may see.";
  return place.startsWith("thread:") || place.includes(" ↔ ") ? null : `There is no conversation “${plain(place)}”.`;
}
