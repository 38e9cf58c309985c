// Conversations: places of talk on one side, what was said at one of them on the other, and a box to say something.
import { computed, effect, signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { push, upload } from "./ac7.ts";
import type { Attachment, Message } from "./hub.ts";
import { LongList } from "./list.tsx";
import { Turn } from "./message.tsx";
import { plain } from "./prose.tsx";
import { address, where } from "./route.ts";
import { attempt, channels, hub, members, messages, objectives, seesAll, tell, visitor } from "./state.ts";
import { GENERAL, type Place, placeOf, targetOf } from "./talk.ts";

const PAGE = 100;

/** What was read up to which offset, kept in the browser. */
const read = signal<Record<Place, number>>(JSON.parse(localStorage.getItem("read") ?? "{}") as Record<Place, number>);
effect(() => localStorage.setItem("read", JSON.stringify(read.value)));

/** The last message at each place. */
const latest = computed(() => {
  const me = visitor.value?.member ?? "";
  const found = new Map<Place, { last: Message; unread: number }>();
  for (const message of messages.value) {
    const place = placeOf(message, me);
    const before = found.get(place);
    const fresh = message.from !== me && message.offset > (read.value[place] ?? -1);
    found.set(place, { last: message, unread: (before?.unread ?? 0) + (fresh ? 1 : 0) });
  }
  return found;
});

export const unread = computed(() => {
  const mine = [...latest.value].filter(([place]) => !place.includes(" ↔ "));
  return mine.reduce((sum, [, { unread: count }]) => sum + count, 0);
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

export function nameOf(place: Place): string {
  if (!place.startsWith("obj:")) return place;
  const objective = objectives.value.find((one) => `obj:${one.id}` === place);
  return objective ? objective.title : place;
}

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
  return <Conversation key={place} place={place} />;
}

export function Conversation({ place }: { place: Place }) {
  const me = visitor.value?.member ?? "";
  const [older, setOlder] = useState<readonly Message[]>([]);
  const [complete, setComplete] = useState(false);
  const [reply, setReply] = useState<Message | null>(null);
  const reading = useRef(false);
  const live = messages.value.filter((message) => placeOf(message, me) === place);
  const first = older[0] ?? live[0];
  const known = new Set(live.map((message) => message.id));
  const rows = [...older.filter((message) => !known.has(message.id)), ...live];
  const target = targetOf(place);

  const readBack = async () => {
    if (reading.current || complete || target === null || hub.link.value !== "live") return;
    reading.current = true;
    await attempt(async () => {
      const peer = place.startsWith("@") ? place.slice(1) : place;
      const everything = seesAll.value && place.startsWith("#");
      const fields = { peer, limit: PAGE, everything, ...(first ? { before: first.offset } : {}) };
      const { messages: page } = await hub.ask("read_history", fields);
      setComplete(page.length === 0);
      setOlder((before) => [...page.toReversed(), ...before]);
    });
    reading.current = false;
  };

  useEffect(() => {
    if (live.length < PAGE) void readBack();
  }, [hub.link.value]);
  const last = rows.at(-1)?.offset ?? -1;
  useEffect(() => {
    if (last > (read.value[place] ?? -1)) read.value = { ...read.value, [place]: last };
  }, [last]);

  return (
    <section class="page talk" aria-label={nameOf(place)}>
      <header class="bar">
        <h1>{plain(nameOf(place))}</h1>
        <Membership place={place} />
      </header>
      {rows.length === 0 ? (
        <div class="empty">
          <p>Nothing was said here yet.</p>
        </div>
      ) : (
        <LongList
          rows={rows}
          keyOf={(message) => message.id}
          guess={76}
          label={`Conversation ${nameOf(place)}`}
          goTo={where.value.message || undefined}
          reachedTop={() => void readBack()}
          draw={(message) => <Turn message={message} chosen={message.id === where.value.message} reply={setReply} />}
        />
      )}
      {target !== null ? (
        <Compose target={target} reply={reply} done={() => setReply(null)} />
      ) : (
        <p class="hint">You see this because you may read the log. To join in, write to one of them.</p>
      )}
    </section>
  );
}

function Membership({ place }: { place: Place }) {
  const name = place.startsWith("#") ? place.slice(1) : "";
  const channel = channels.value.find((one) => one.name === name);
  if (!channel || place === GENERAL) return null;
  const within = channel.subscribers.includes(visitor.value?.member ?? "");
  const change = () => attempt(() => hub.ask(within ? "unsub" : "sub", { channel: name }), within ? `You left ${place}.` : `You joined ${place}.`);
  return (
    <>
      <span class="count" title={channel.subscribers.map(plain).join(", ")}>
        {channel.subscribers.length} in it
      </span>
      <button type="button" onClick={() => void change()}>
        {within ? "Leave" : "Join"}
      </button>
    </>
  );
}

function Compose({ target, reply, done }: { target: string; reply: Message | null; done(): void }) {
  const box = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState("");
  const [urgent, setUrgent] = useState(false);
  const [files, setFiles] = useState<readonly Attachment[]>([]);
  const [pick, setPick] = useState(0);
  useEffect(() => {
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
    if (!body) return;
    const fields = {
      target: target === GENERAL ? "#general" : target,
      body,
      ...(urgent ? { priority: "urgent" as const } : {}),
      ...(reply ? { reply_to: reply.id, ...(reply.thread ? { thread: reply.thread } : {}) } : {}),
    };
    const well = await attempt(async () => {
      if (files.length) {
        await push(target, body, files);
        return;
      }
      const accepted = await hub.ask("send", fields);
      if (accepted.recipients === 0) tell("Accepted, but nobody is there to receive it.");
    });
    if (!well) return;
    setText("");
    setUrgent(false);
    setFiles([]);
    done();
  };

  const pressed = (event: KeyboardEvent) => {
    if (chosen && (event.key === "Tab" || event.key === "Enter")) {
      event.preventDefault();
      complete(chosen);
    } else if (chosen && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      setPick((pick + (event.key === "ArrowDown" ? 1 : near.length - 1)) % near.length);
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
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
          ↪ {plain(reply.from)}: {plain(reply.body).slice(0, 120)}{" "}
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
        aria-label={`Say something to ${plain(target)}`}
        placeholder={`Say something to ${plain(target)} — Enter sends, Shift+Enter is a new line`}
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
            const chosen = [...(event.currentTarget.files ?? [])];
            event.currentTarget.value = "";
            void attempt(async () => {
              const kept = await Promise.all(chosen.map(upload));
              setFiles((before) => [...before, ...kept]);
            });
          }}
        />
      </label>
      <label>
        <input type="checkbox" disabled={files.length > 0} checked={urgent} onChange={(event) => setUrgent(event.currentTarget.checked)} /> Urgent
      </label>
      <button type="submit" class="main" disabled={!text.trim()}>
        Send
      </button>
    </form>
  );
}
