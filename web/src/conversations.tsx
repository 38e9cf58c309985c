// Conversations: a list of places, the messages at one of them, and a box to write.
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { sendFiles, upload } from "./api.ts";
import type { Attachment, Message } from "./hub.ts";
import { LongList } from "./list.tsx";
import { Turn } from "./message.tsx";
import { Pause } from "./pause.tsx";
import { beginning, plain } from "./plain.ts";
import { address, go, where } from "./route.ts";
import { lookedAt } from "./seen.ts";
import {
  KEPT_MAX,
  ROWS_MAX,
  attempt,
  channels,
  firstOf,
  hub,
  isFull,
  members,
  messages,
  mine,
  objectives,
  readOlder,
  seesAll,
  tell,
  visible,
  visitor,
  whole,
} from "./state.ts";
import { GENERAL, type Place, conversationsAt, hasPart, nameOf, placeOf, targetOf } from "./talk.ts";

const PAGE = 100;

type Marks = Readonly<Record<Place, number>>;

/** Offset up to which each place was read. The browser keeps it for each member who uses it. */
const read = signal<Marks>({});
const storageKey = computed(() => (visitor.value ? `read ${visitor.value.member}` : ""));

function kept(): Marks {
  try {
    return JSON.parse(localStorage.getItem(storageKey.value) ?? "{}") as Marks;
  } catch {
    return {};
  }
}

effect(() => {
  read.value = kept();
});
// The person read something in another tab.
addEventListener("storage", (event) => {
  if (event.key === storageKey.value) read.value = kept();
});

function mark(place: Place, offset: number): void {
  if (offset <= (read.value[place] ?? -1)) return;
  read.value = { ...kept(), [place]: offset };
  localStorage.setItem(storageKey.value, JSON.stringify(read.value));
}

/** The last message at each place. */
export const latest = computed(() => {
  const me = visitor.value?.member ?? "";
  const found = new Map<Place, { last: Message; unread: number }>();
  const start = messages.value[0]?.offset ?? Infinity;
  for (const message of [...mine.value.filter((one) => one.offset < start), ...messages.value]) {
    const place = placeOf(message, me);
    const before = found.get(place);
    const fresh = message.from !== me && message.offset > (read.value[place] ?? -1);
    found.set(place, { last: message, unread: (before?.unread ?? 0) + (fresh ? 1 : 0) });
  }
  return found;
});

export const unread = computed(() => {
  const own = [...latest.value].filter(([place]) => !place.includes(" ↔ "));
  return own.reduce((sum, [, { unread: count }]) => sum + count, 0);
});

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
                const count = latest.value.get(place)?.unread ?? 0;
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

export function Talk() {
  const place = where.value.of || GENERAL;
  return (
    <>
      <Choice here={place} />
      <Conversation key={place} place={place} />
    </>
  );
}

/** The places, where there is no room for them at the side. */
function Choice({ here }: { here: Place }) {
  return (
    <label class="narrow bar">
      <span class="sr">Conversation</span>
      <select value={here} onChange={(event) => go("talk", event.currentTarget.value)}>
        {GROUPS.map(([title, belongs]) => (
          <optgroup key={title} label={title}>
            {places.value.filter(belongs).map((place) => (
              <option key={place} value={place}>
                {plain(nameOf(place))}
                {latest.value.get(place)?.unread && place !== here
                  ? ` (${latest.value.get(place)?.unread} unread)`
                  : ""}
              </option>
            ))}
          </optgroup>
        ))}
      </select>
    </label>
  );
}

/** The messages at a place. Beside something else it needs no title of its own. */
export function Conversation({ place, title = nameOf(place) }: { place: Place; title?: string }) {
  const me = visitor.value?.member ?? "";
  const [, redraw] = useState(0);
  const [reply, setReply] = useState<Message | null>(null);
  const reading = useRef(false);
  const complete = useRef(false);
  // Messages that were scrolled back to, and those that the page dropped, stay: an open conversation has no gap.
  const held = useRef<readonly Message[]>([]);
  // Exception: so many messages came at once that the page keeps none of the old ones. Then the rest is read again.
  const end = useRef(-1);
  if (end.current >= 0 && (messages.value[0]?.offset ?? -1) > end.current) held.current = [];
  end.current = messages.value.at(-1)?.offset ?? end.current;
  const live = messages.value.filter((message) => placeOf(message, me) === place);
  const start = live[0]?.offset ?? Infinity;
  let rows: readonly Message[] = held.current.length
    ? [...held.current.filter((message) => message.offset < start), ...live]
    : live;
  // An open conversation holds as many messages as the page, and those scrolled back to. Then the newest stay.
  const stays = firstOf(rows, rows.length > ROWS_MAX ? KEPT_MAX : ROWS_MAX);
  if (stays > 0) {
    rows = rows.slice(stays);
    complete.current = false;
  }
  held.current = rows;
  const target = targetOf(place);
  const writes = target !== null && (!place.startsWith("obj:") || hasPart(place));

  const readBack = async () => {
    if (reading.current || complete.current || hub.link.value !== "live" || isFull(held.current)) return;
    reading.current = true;
    if (target === null) {
      // The conversation of two others has no history of its own. Its messages are in the history of everything.
      await attempt(readOlder);
      reading.current = false;
      return;
    }
    let moved = false;
    await attempt(async () => {
      const peer = place.startsWith("@") ? place.slice(1) : place;
      const everything = seesAll.value && !place.startsWith("@");
      const first = held.current[0];
      const fields = { peer, limit: PAGE, everything, ...(first ? { before: first.offset } : {}) };
      const { messages: page } = await hub.ask("read_history", fields);
      moved = held.current[0] !== first;
      if (moved) return;
      complete.current = page.length === 0;
      held.current = [...page.toReversed(), ...held.current];
      redraw((count) => count + 1);
    });
    reading.current = false;
    if (moved) void readBack();
  };

  useEffect(() => {
    if (live.length < PAGE) void readBack();
  }, [hub.link.value]);
  const oldest = rows[0]?.offset ?? -1;
  const { at } = where.value;
  useEffect(() => {
    // Read back to the message that the address names, up to a limit.
    if (at !== null && at < oldest && rows.length < KEPT_MAX) void readBack();
  }, [at, oldest, hub.link.value]);
  const last = rows.at(-1)?.offset ?? -1;
  // The list reports this while it draws, before the effects run.
  const ended = useRef(true);
  const [atEnd, setAtEnd] = useState(true);
  useEffect(() => {
    if (last < 0 || !ended.current || !visible.value) return;
    mark(place, last);
    if (target !== null) lookedAt(place, last);
  }, [last, atEnd, visible.value, hub.link.value]);

  return (
    <section class="page talk" aria-label={nameOf(place)}>
      <header class="bar">
        <h1>{plain(title)}</h1>
        <Membership place={place} />
        <Pause conversations={conversationsAt(place, me)} name={nameOf(place)} />
      </header>
      {rows.length === 0 ? (
        <div class="empty">
          {target !== null || whole.value ? (
            <p>Nothing was said here yet.</p>
          ) : (
            <p>
              Nothing of it is among the newest messages.{" "}
              <button type="button" onClick={() => void readBack()}>
                Older ones
              </button>
            </p>
          )}
        </div>
      ) : (
        <LongList
          rows={rows}
          keyOf={(message) => message.id}
          guess={76}
          label={`Conversation ${nameOf(place)}`}
          goTo={where.value.message || undefined}
          reachedTop={() => void readBack()}
          ended={(now) => {
            ended.current = now;
            setAtEnd(now);
          }}
          draw={(message) => (
            <Turn message={message} chosen={message.id === where.value.message} reply={writes ? setReply : undefined} />
          )}
        />
      )}
      {writes ? (
        <Compose target={target} reply={reply} done={() => setReply(null)} />
      ) : target === null ? (
        <p class="hint">You see this because you may read the log. To join in, write to one of them.</p>
      ) : (
        <p class="hint">Only those who have a part in it write here.</p>
      )}
    </section>
  );
}

function Membership({ place }: { place: Place }) {
  const name = place.startsWith("#") ? place.slice(1) : "";
  const channel = channels.value.find((one) => one.name === name);
  if (!channel || place === GENERAL) return null;
  const within = channel.subscribers.includes(visitor.value?.member ?? "");
  const change = () =>
    attempt(
      () => hub.ask(within ? "unsub" : "sub", { channel: name }),
      within ? `You left ${place}.` : `You joined ${place}.`,
    );
  return (
    <>
      <span class="count" title={channel.subscribers.map(plain).join(", ")}>
        {channel.subscribers.length} {channel.subscribers.length === 1 ? "member" : "members"}
      </span>
      <button type="button" onClick={() => void change()}>
        {within ? "Leave" : "Join"}
      </button>
    </>
  );
}

interface Utterance {
  body: string;
  urgent: boolean;
  files: readonly Attachment[];
  reply: Message | null;
}

/** Say something. With files it goes by another way, on which they are shown to whoever receives it. */
async function say(target: Place, { body, urgent, files, reply }: Utterance): Promise<void> {
  const context = reply ? { reply_to: reply.id, ...(reply.thread ? { thread: reply.thread } : {}) } : {};
  const known =
    target === GENERAL || !target.startsWith("#") || channels.value.some((one) => `#${one.name}` === target);
  if (files.length && !known) throw new Error(`Nobody is reached at ${target}.`);
  const recipients = files.length
    ? await sendFiles({ target, body, urgent, ...context }, files)
    : (await hub.ask("send", { target, body, ...(urgent ? { priority: "urgent" as const } : {}), ...context }))
        .recipients;
  if (recipients === 0) tell("Accepted, but nobody is there to receive it.");
}

function Compose({ target, reply, done }: { target: string; reply: Message | null; done(): void }) {
  const box = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState("");
  const [urgent, setUrgent] = useState(false);
  const [files, setFiles] = useState<readonly Attachment[]>([]);
  const [pick, setPick] = useState(0);
  const sending = useRef(false);
  useLayoutEffect(() => {
    if (reply) box.current?.focus();
  }, [reply]);

  const word = /(?:^|\s)([@#][\w.-]*)$/.exec(text)?.[1] ?? "";
  const near = word
    ? [...members.value.map((member) => `@${member.name}`), ...channels.value.map((channel) => `#${channel.name}`)]
        .filter((name) => name.toLowerCase().startsWith(word.toLowerCase()) && name !== word)
        .slice(0, 6)
    : [];
  const chosen = near[Math.min(pick, near.length - 1)];
  const complete = (name: string) => {
    setText(`${text.slice(0, text.length - word.length)}${name} `);
    setPick(0);
    box.current?.focus();
  };

  const send = async () => {
    const body = text.trim();
    if (!body || sending.current) return;
    sending.current = true;
    const sent = await attempt(() => say(target, { body, urgent, files, reply }));
    sending.current = false;
    if (!sent) return;
    // Text and files that were added in between belong to the next message.
    setText((now) => (now.trim() === body ? "" : now));
    setUrgent(false);
    setFiles((now) => now.filter((file) => !files.includes(file)));
    done();
  };

  const pressed = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (chosen && !event.shiftKey && (event.key === "Tab" || event.key === "Enter")) {
      event.preventDefault();
      complete(chosen);
    } else if (chosen && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      setPick((pick + (event.key === "ArrowDown" ? 1 : near.length - 1)) % near.length);
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      void send();
    } else if (event.key === "Escape") {
      done();
    }
  };

  return (
    <form
      class="compose"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      {reply && (
        <p class="quoted">
          ↪ {plain(reply.from)}: {beginning(reply.body, 120)}{" "}
          <button type="button" class="quiet" onClick={done}>
            Not a reply
          </button>
        </p>
      )}
      {near.length > 0 && (
        <ul class="near" role="listbox" aria-label="Names">
          {near.map((name) => (
            <li key={name} role="option" aria-selected={name === chosen} onMouseDown={() => complete(name)}>
              {plain(name)}
            </li>
          ))}
        </ul>
      )}
      <textarea
        ref={box}
        rows={2}
        value={text}
        aria-label={`Say something to ${plain(nameOf(target))}`}
        placeholder={`Say something to ${plain(nameOf(target))}`}
        title="Enter sends, Shift+Enter is a new line"
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={pressed}
      />
      {files.length > 0 && (
        <p class="line">
          {files.map((file) => (
            <span class="mark" key={file.path}>
              {plain(file.name ?? file.path)}
            </span>
          ))}
          <button type="button" class="quiet" onClick={() => setFiles([])}>
            Without files
          </button>
        </p>
      )}
      <label class="attach">
        Attach
        <input
          type="file"
          multiple
          class="sr"
          onChange={(event) => {
            const picked = [...(event.currentTarget.files ?? [])];
            event.currentTarget.value = "";
            void attempt(async () => {
              const uploaded = await Promise.all(picked.map((file) => upload(file, visitor.value?.member ?? "")));
              setFiles((before) => [...before, ...uploaded]);
            });
          }}
        />
      </label>
      <label>
        <input type="checkbox" checked={urgent} onChange={(event) => setUrgent(event.currentTarget.checked)} /> Urgent
      </label>
      <button type="submit" class="main" disabled={!text.trim()}>
        Send
      </button>
    </form>
  );
}
