// One message: as a row of the live tail, as a turn of a conversation, and with all its details.
import { useEffect, useRef } from "preact/hooks";
import { signal } from "@preact/signals";
import { fileAddress } from "./api.ts";
import { asksAbout } from "./asks.ts";
import { dayName, isSameDay, minuteOf, momentOf, timeOf } from "./clock.ts";
import type { Attachment, Message } from "./hub.ts";
import { Life, Receipts } from "./life.tsx";
import { Pause } from "./pause.tsx";
import { oneLine, plain } from "./plain.ts";
import { Prose } from "./prose.tsx";
import { RemediesOf } from "./remedies.tsx";
import { address, besides, go, where } from "./route.ts";
import { Share, copy } from "./share.tsx";
import { shortId, shortPlace } from "./short.ts";
import { attempt, hub, messages, now, permissions, seesAll, visitor } from "./state.ts";
import { happening, hasPart, nameOf, placeOf, threadPlace } from "./talk.ts";
import { Wire } from "./wire.tsx";

export function Who({ message }: { message: Message }) {
  const doubt = message.verified === false;
  return (
    <span class={doubt ? "who doubt" : "who"} title={doubt ? "The hub cannot vouch for this name" : undefined}>
      {plain(message.from)}
      {doubt ? " (unverified)" : ""}
    </span>
  );
}

function Marks({ message }: { message: Message }) {
  const level = message.level ?? "info";
  const failed = message.signature === "failed" || message.signature === "misnamed";
  return (
    <>
      {message.priority === "urgent" && <span class="mark urgent">urgent</span>}
      {level !== "info" && <span class={`mark level ${level}`}>{level}</span>}
      {failed && <span class="mark bad">signature {message.signature}</span>}
      {!!message.attachments?.length && <span class="mark">{message.attachments.length} attached</span>}
      {!!message.notes?.length && (
        <span class="mark" title={message.notes.map(plain).join("\n")}>
          not all carried
        </span>
      )}
    </>
  );
}

/** The line above the first message of a day. */
export function Day({ before, message }: { before: Message | undefined; message: Message }) {
  if (before && isSameDay(before.sent_at_ms, message.sent_at_ms)) return null;
  return <p class="between-turns">{dayName(message.sent_at_ms, now.value)}</p>;
}

/** A line of the live tail. */
export function LiveRow({ message, chosen }: { message: Message; chosen: boolean }) {
  const place = placeOf(message, visitor.value?.member ?? "");
  const to = plain(message.target === "*" ? "everybody" : nameOf(message.target));
  const happened = happening(message);
  return (
    <div class={chosen ? "row chosen" : "row"}>
      <a href={besides(message)} aria-current={chosen ? "true" : undefined}>
        <time title={momentOf(message.sent_at_ms)}>{timeOf(message.sent_at_ms)}</time>
        <span class="between" title={`${plain(message.from)} → ${to}`}>
          <Who message={message} /> <span class="to">→ {to}</span>
        </span>
        <Wire name={message.protocol} />
        <span class="says">
          <Marks message={message} />
          {message.title ? <b>{plain(message.title)} </b> : null}
          {happened ? <i>{happened}</i> : oneLine(message.body, 300)}
        </span>
        <Life message={message} />
        <span class="sr">in {plain(nameOf(place))}</span>
      </a>
      <RemediesOf message={message} />
    </div>
  );
}

interface TurnProps {
  message: Message;
  chosen: boolean;
  /** True if it goes on with the turn before it: then its heading is not repeated. */
  goesOn: boolean;
  reply?: ((message: Message) => void) | undefined;
}

/** A turn of a conversation. */
export function Turn({ message, chosen, goesOn, reply }: TurnProps) {
  const mine = message.from === visitor.value?.member;
  const happened = happening(message);
  const kinds = { mine, chosen, event: message.kind === "event", "goes-on": goesOn };
  return (
    <article
      class={["turn", ...Object.entries(kinds).flatMap(([name, is]) => (is ? [name] : []))].join(" ")}
      aria-label={`${plain(message.from)}, ${timeOf(message.sent_at_ms)}`}
    >
      <header>
        {!goesOn && (
          <>
            <Who message={message} />
            <Wire name={message.protocol} />
          </>
        )}
        <time title={momentOf(message.sent_at_ms)}>{minuteOf(message.sent_at_ms)}</time>
        <Marks message={message} />
        <span class="number" title="Number of the message, for commands such as tieline reply">
          {message.offset}
        </span>
        <span class="do">
          <RemediesOf message={message} />
          {reply && (
            <button type="button" class="quiet" onClick={() => reply(message)}>
              Reply
            </button>
          )}
          {message.thread && <a href={address("talk", threadPlace(message.thread), message)}>Thread</a>}
        </span>
        <a class="receipts" href={besides(message)}>
          <Life message={message} />
          <span class="sr">Receipts</span>
        </a>
      </header>
      {message.reply_to && <Quoted id={message.reply_to} />}
      {message.title && <h2>{plain(message.title)}</h2>}
      {happened ? <p class="happened">{happened}</p> : <Prose text={message.body} />}
    </article>
  );
}

function Quoted({ id }: { id: string }) {
  const found = messages.value.find((message) => message.id === id);
  if (!found) return null;
  return (
    <p class="quoted">
      ↪ {plain(found.from)}: {oneLine(found.body, 120)}
    </p>
  );
}

// The details of one message.

/** A message that is looked at and is not among those that are loaded; `null`, if there is none that one may see. */
const further = signal<{ id: string; message: Message | null } | null>(null);

permissions.subscribe(() => {
  further.value = null;
});

async function readFurther(id: string, at: number): Promise<void> {
  const under = permissions.value;
  const { messages: page } = await hub.ask("read_history", { before: at + 1, limit: 1, everything: seesAll.value });
  if (permissions.value === under) further.value = { id, message: page.find((one) => one.id === id) ?? null };
}

export function Aside() {
  const { message: id, at } = where.value;
  const live = hub.link.value === "live";
  const loaded = messages.value.find((one) => one.id === id);
  useEffect(() => {
    if (id && live && !loaded && at !== null) void attempt(() => readFurther(id, at));
  }, [id, at, live, !loaded, permissions.value]);
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    // On a narrow screen the details cover the page, so they get the keyboard.
    if (box.current && getComputedStyle(box.current).position === "fixed") box.current.querySelector("h2")?.focus();
    return () =>
      void setTimeout(() => document.activeElement === document.body && document.getElementById("main")?.focus());
  }, [id]);
  if (!id) return null;
  const close = () => go(where.value.page, where.value.of);
  const looked = further.value?.id === id ? further.value : null;
  const message = loaded ?? looked?.message ?? null;
  const place = message ? placeOf(message, visitor.value?.member ?? "") : "";
  return (
    <aside
      aria-label="Message"
      ref={box}
      onKeyDown={(event) => {
        // A dialog in it has an Escape of its own.
        if (event.key === "Escape" && !(event.target as Element).closest("dialog")) close();
      }}
    >
      <header>
        <h2 tabIndex={-1}>Message</h2>
        {message && <Share asks={asksAbout(message)} />}
        <button type="button" class="quiet" aria-label="Close" onClick={close}>
          ✕
        </button>
      </header>
      {message ? (
        <>
          <dl class="facts">
            <dt>From</dt>
            <dd>
              <Who message={message} /> on <Wire name={message.protocol} />
            </dd>
            <dt>To</dt>
            <dd>{plain(shortPlace(message.target))}</dd>
            <dt>In</dt>
            <dd>
              <a href={address("talk", place, message)}>{plain(nameOf(place))}</a>
            </dd>
            <dt>At</dt>
            <dd>{momentOf(message.sent_at_ms)}</dd>
            {message.thread && (
              <>
                <dt>Thread</dt>
                <dd>
                  <a href={address("talk", threadPlace(message.thread))} title={plain(message.thread)}>
                    {plain(shortId(message.thread))}
                  </a>{" "}
                  <Pause conversations={[`thread:${message.thread}`]} name={shortId(message.thread)} />
                </dd>
              </>
            )}
            {!!message.hops && (
              <>
                <dt>Hops</dt>
                <dd>{message.hops === 1 ? "an automatic reply" : `${message.hops} automatic replies`} led here</dd>
              </>
            )}
            {message.signature && (
              <>
                <dt>Signature</dt>
                <dd>{message.signature}</dd>
              </>
            )}
            <dt>Number</dt>
            <dd>
              <code>{message.offset}</code>, for example in <code>tieline receipts {message.offset}</code>
            </dd>
            <dt>Id</dt>
            <dd>
              <code title={id}>{shortId(id)}</code>{" "}
              <button type="button" class="quiet" onClick={() => void copy(id)}>
                Copy id
              </button>
            </dd>
          </dl>
          {message.notes?.map((note) => (
            <p class="note" key={note}>
              {plain(note)}
            </p>
          ))}
          {happening(message) ? <pre class="data">{plain(message.body)}</pre> : <Prose text={message.body} />}
          {message.data && <pre class="data">{plain(JSON.stringify(message.data, null, 2))}</pre>}
          <Files of={message.attachments ?? []} closed={message.from !== visitor.value?.member && !hasPart(place)} />
        </>
      ) : (
        <p>
          {at === null
            ? "This message is not among those that are loaded."
            : looked
              ? "There is no such message that you may see."
              : "Looking for it…"}
        </p>
      )}
      <h2>Receipts</h2>
      <Receipts key={id} id={id} message={message} />
    </aside>
  );
}

/** Files, to be downloaded; a page never opens them. Who only may read the log is told of them, and does not get them. */
export function Files({ of, closed = false }: { of: readonly Attachment[]; closed?: boolean }) {
  if (!of.length) return null;
  return (
    <ul class="files" aria-label="Files">
      {of.map((file) => (
        <li key={file.path}>
          {closed ? (
            plain(file.name || file.path)
          ) : (
            <a href={fileAddress(file.path)} download={file.name || "file"} rel="noopener">
              {plain(file.name || file.path)}
            </a>
          )}{" "}
          <small>
            {file.size?.toLocaleString()} bytes, {plain(file.media_type ?? "")}
          </small>
        </li>
      ))}
    </ul>
  );
}
