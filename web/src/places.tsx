// Places of talk: all of them, the last message at each, and what the viewer has not seen there.
import { computed } from "@preact/signals";
import type { Message } from "./hub.ts";
import { unseenAt, unseenCount } from "./inbox.ts";
import { plain } from "./plain.ts";
import { address, go, where } from "./route.ts";
import { channels, members, messages, mine, objectives, visitor } from "./state.ts";
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

export function Places() {
  const here = where.value.page === "talk" ? where.value.of || GENERAL : "";
  const offset = (place: Place) => latest.value.get(place)?.last.offset ?? -1;
  return (
    <nav class="places" aria-label="Conversations">
      {GROUPS.map(([title, belongs]) => {
        const found = places.value.filter(belongs).toSorted((one, other) => offset(other) - offset(one));
        if (!found.length) return null;
        return (
          <section key={title}>
            <h2>{title}</h2>
            <ul>
              {found.map((place) => {
                const count = unseenAt(place).size;
                return (
                  <li key={place}>
                    <a href={address("talk", place)} aria-current={place === here ? "page" : undefined}>
                      <span class="name">{plain(nameOf(place))}</span>
                      {count > 0 && place !== here && (
                        <span class="badge">
                          {count}
                          <span class="sr"> unread</span>
                        </span>
                      )}
                    </a>
                  </li>
                );
              })}
            </ul>
          </section>
        );
      })}
    </nav>
  );
}

/** The places, where there is no room for them at the side. */
export function Choice({ here }: { here: Place }) {
  return (
    <label class="narrow bar">
      <span class="sr">Conversation</span>
      <select value={here} onChange={(event) => go("talk", event.currentTarget.value)}>
        {GROUPS.map(([title, belongs]) => (
          <optgroup key={title} label={title}>
            {places.value.filter(belongs).map((place) => (
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
