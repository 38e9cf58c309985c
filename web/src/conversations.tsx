// Conversations: the messages at one place, and a box to write.
import { useEffect, useMemo, useState } from "preact/hooks";
import { asksAt } from "./asks.ts";
import { Backlog, PAGE } from "./backlog.ts";
import { isSameDay } from "./clock.ts";
import { Compose } from "./compose.tsx";
import type { Message } from "./hub.ts";
import { unseenAt } from "./inbox.ts";
import { LongList } from "./list.tsx";
import { Day, Turn } from "./message.tsx";
import { useOpening } from "./opening.ts";
import { Pause } from "./pause.tsx";
import { Choice, unknownAt } from "./places.tsx";
import { plain } from "./plain.ts";
import { address, where } from "./route.ts";
import { Gaze } from "./seen.ts";
import { Share } from "./share.tsx";
import { attempt, channels, hub, seesAll, visitor } from "./state.ts";
import { GENERAL, type Place, conversationsAt, hasPart, nameOf, placeOf, targetOf, threadOf } from "./talk.ts";

/** Messages of one sender that come so soon after each other have one heading. */
const TOGETHER_MS = 5 * 60_000;

export function Talk() {
  const place = where.value.of || GENERAL;
  return <Conversation key={place} place={place} />;
}

/** Take the messages at a place while it is shown. */
function useBacklog(place: Place): Backlog {
  const backlog = useMemo(() => new Backlog(place), [place]);
  useEffect(() => backlog.follow(), [backlog]);
  useEffect(() => {
    if (backlog.rows.peek().length < PAGE) void backlog.readBack();
  }, [backlog, hub.link.value]);
  return backlog;
}

/** Report what is seen at a place while it is shown. */
function useGaze(place: Place): Gaze {
  const gaze = useMemo(() => new Gaze(place), [place]);
  useEffect(() => gaze.follow(), [gaze]);
  return gaze;
}

/** The messages at a place. Beside something else it has another title, and offers no other places. */
export function Conversation({ place, title }: { place: Place; title?: string }) {
  const me = visitor.value?.member ?? "";
  const backlog = useBacklog(place);
  const gaze = useGaze(place);
  const { line, jump, go } = useOpening(place, backlog);
  const [reply, setReply] = useState<Message | null>(null);
  const [shown, setShown] = useState({ first: 0, last: 0, atEnd: true });
  const rows = backlog.rows.value;
  const unknown = unknownAt(place);
  const target = unknown === null ? writesTo(place, rows, me) : null;
  const fresh = line === null ? undefined : rows.find((message) => message.offset >= line);

  return (
    <section class="page talk" aria-label={nameOf(place)}>
      <header class="bar">
        <h1 class={title ? "" : "chosen-place"}>{plain(title ?? nameOf(place))}</h1>
        {!title && <Choice here={place} />}
        <Membership place={place} />
        <Pause conversations={conversationsAt(place, me)} name={nameOf(place)} />
        <Share asks={asksAt(place, seesAll.value)} place={place} />
      </header>
      {rows.length === 0 ? (
        <Empty backlog={backlog} place={place} unknown={unknown} />
      ) : (
        <div class="reel">
          <LongList
            rows={rows}
            keyOf={(message) => message.id}
            guess={40}
            label={`Conversation ${nameOf(place)}`}
            goTo={jump}
            reachedTop={() => void backlog.readBack()}
            inView={(there, atEnd, box) => {
              gaze.look(
                there.map((message) => message.offset),
                box,
              );
              const [first, last] = [there[0]?.offset ?? 0, there.at(-1)?.offset ?? 0];
              setShown((was) =>
                was.first === first && was.last === last && was.atEnd === atEnd ? was : { first, last, atEnd },
              );
            }}
            draw={(message, index) => (
              <>
                <Between before={rows[index - 1]} message={message} fresh={message === fresh} />
                <Turn
                  message={message}
                  chosen={message.id === where.value.message}
                  goesOn={goesOn(rows[index - 1], message) && message !== fresh}
                  reply={target === null ? undefined : setReply}
                />
              </>
            )}
          />
          <Ways unseen={unseenAt(place)} {...shown} go={go} end={rows.at(-1)?.offset ?? 0} />
        </div>
      )}
      {target !== null ? (
        <Compose target={target} thread={threadOf(place)} reply={reply} done={() => setReply(null)} />
      ) : (
        <p class="hint">{unknown ?? whyNot(place)}</p>
      )}
    </section>
  );
}

/** The target of what the viewer writes here; null if that is not for the viewer. */
function writesTo(place: Place, rows: readonly Message[], me: string): string | null {
  const last = rows.at(-1);
  const there = threadOf(place) !== null && last ? placeOf(last, me) : place;
  return !there.startsWith("obj:") || hasPart(there) ? targetOf(there) : null;
}

function whyNot(place: Place): string {
  if (threadOf(place) !== null) return "A thread is written to where its last message is.";
  return targetOf(place) === null
    ? "You see this because you may read the log. To join in, write to one of them."
    : "Only those who have a part in it write here.";
}

/** True if a message goes on with what its sender just said, so that it needs no heading of its own. */
export function goesOn(before: Message | undefined, { from, protocol, sent_at_ms, kind, verified }: Message): boolean {
  return (
    before?.from === from &&
    before.protocol === protocol &&
    before.kind === kind &&
    before.verified === verified &&
    sent_at_ms - before.sent_at_ms < TOGETHER_MS &&
    isSameDay(before.sent_at_ms, sent_at_ms)
  );
}

/** Lines above a message: its day, if it is the first of it, and the line above what is new. */
function Between({ before, message, fresh }: { before: Message | undefined; message: Message; fresh: boolean }) {
  return (
    <>
      <Day before={before} message={message} />
      {fresh && (
        <p class="between-turns new" role="separator">
          New
        </p>
      )}
    </>
  );
}

interface WaysProps {
  unseen: ReadonlySet<number>;
  /** Offsets of the first and the last message in view. */
  first: number;
  last: number;
  atEnd: boolean;
  go(offset: number): void;
  /** Offset of the last message. */
  end: number;
}

/** Ways to messages that are not in view: the first that was not seen, and the end. */
function Ways({ unseen, first, last, atEnd, go, end }: WaysProps) {
  const offsets = [...unseen];
  const above = offsets.filter((offset) => offset < first);
  const below = offsets.filter((offset) => offset > last).length;
  return (
    <p class="ways-over">
      {above.length > 0 && (
        <button type="button" onClick={() => go(above[0] ?? 0)}>
          ↑ {above.length.toLocaleString()} unread
        </button>
      )}
      {!atEnd && (
        <button type="button" onClick={() => go(end)}>
          ↓ {below > 0 ? `${below.toLocaleString()} unread` : "Newest"}
        </button>
      )}
    </p>
  );
}

function Empty({ backlog, place, unknown }: { backlog: Backlog; place: Place; unknown: string | null }) {
  return (
    <div class="empty">
      {unknown !== null ? (
        <p>
          <a href={address("talk")}>Go to {GENERAL}</a>
        </p>
      ) : targetOf(place) !== null || backlog.isWhole.value ? (
        <p>Nothing was said here yet.</p>
      ) : (
        <p>
          Nothing of it is among the newest messages.{" "}
          <button type="button" onClick={() => void backlog.readBack()}>
            Older ones
          </button>
        </p>
      )}
    </div>
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
