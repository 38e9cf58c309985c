// One message: as a row of the live tail, as a turn of a conversation, and with all that is known of it.
import { useEffect } from "preact/hooks";
import { signal } from "@preact/signals";
import { fileAddress } from "./ac7.ts";
import type { Attachment, Message, Receipt } from "./hub.ts";
import { Pause } from "./pause.tsx";
import { Prose, beginning, plain } from "./prose.tsx";
import { address, besides, go, where } from "./route.ts";
import { attempt, hub, messages, tell, visitor } from "./state.ts";
import { dayOf, happening, nameOf, placeOf, timeOf } from "./talk.ts";

/** A protocol by its name and a colour, so that neither has to do alone. */
export const Wire = ({ name }: { name: string }) => <span class={`wire ${/^[a-z0-9-]+$/.test(name) ? name : "other"}`}>{plain(name)}</span>;

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
      {!!message.notes?.length && <span class="mark" title={message.notes.map(plain).join("\n")}>not all carried</span>}
    </>
  );
}

/** A line of the live tail. */
export function LiveRow({ message, chosen }: { message: Message; chosen: boolean }) {
  const place = placeOf(message, visitor.value?.member ?? "");
  const happened = happening(message);
  return (
    <a class={chosen ? "row chosen" : "row"} href={besides(message.id)} aria-current={chosen ? "true" : undefined}>
      <time>{timeOf(message.sent_at_ms)}</time>
      <Wire name={message.protocol} />
      <span class="between">
        <Who message={message} /> <span class="to">→ {plain(message.target === "*" ? "everybody" : nameOf(message.target))}</span>
      </span>
      <span class="says">
        <Marks message={message} />
        {message.title ? <b>{plain(message.title)} </b> : null}
        {happened ? <i>{happened}</i> : beginning(message.body, 300)}
      </span>
      <span class="sr">in {plain(nameOf(place))}</span>
    </a>
  );
}

/** A turn of a conversation. */
export function Turn({ message, chosen, reply }: { message: Message; chosen: boolean; reply(message: Message): void }) {
  const mine = message.from === visitor.value?.member;
  const happened = happening(message);
  return (
    <article class={`turn${mine ? " mine" : ""}${chosen ? " chosen" : ""}${message.kind === "event" ? " event" : ""}`}>
      <header>
        <Who message={message} />
        <Wire name={message.protocol} />
        <time title={new Date(message.sent_at_ms).toString()}>
          {dayOf(message.sent_at_ms)} {timeOf(message.sent_at_ms)}
        </time>
        <Marks message={message} />
        <span class="do">
          <button type="button" class="quiet" onClick={() => reply(message)}>
            Reply
          </button>
          <a href={besides(message.id)}>Receipts</a>
        </span>
      </header>
      {message.reply_to && <Quoted id={message.reply_to} />}
      {message.title && <h3>{plain(message.title)}</h3>}
      {happened ? <p class="happened">{happened}</p> : <Prose text={message.body} />}
    </article>
  );
}

function Quoted({ id }: { id: string }) {
  const found = messages.value.find((message) => message.id === id);
  if (!found) return null;
  return (
    <p class="quoted">
      ↪ {plain(found.from)}: {beginning(found.body, 120)}
    </p>
  );
}

// All that is known of one message.

const receipts = signal<{ id: string; list: readonly Receipt[] } | null>(null);
const SEEN = new Set(["seen", "acked"]);

hub.progressed = (step) => {
  if (receipts.value?.id === step.id) void readReceipts(step.id);
};

async function readReceipts(id: string): Promise<void> {
  await attempt(async () => {
    receipts.value = { id, list: (await hub.ask("follow", { id, until: "offered" })).receipts };
  });
}

export function Aside() {
  const id = where.value.message;
  const live = hub.link.value === "live";
  useEffect(() => {
    if (id && live) void readReceipts(id);
  }, [id, live]);
  if (!id) return null;
  const message = messages.value.find((one) => one.id === id);
  const list = receipts.value?.id === id ? receipts.value.list : null;
  const unseen = list?.filter((receipt) => !SEEN.has(receipt.state)).length ?? 0;
  const place = message ? placeOf(message, visitor.value?.member ?? "") : "";
  return (
    <aside aria-label="Message">
      <header>
        <h2>Message</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={() => go(where.value.page, where.value.of)}>
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
            <dd>{plain(message.target)}</dd>
            <dt>In</dt>
            <dd>
              <a href={address("talk", place, id)}>{plain(nameOf(place))}</a>
            </dd>
            <dt>At</dt>
            <dd>{new Date(message.sent_at_ms).toLocaleString()}</dd>
            {message.thread && (
              <>
                <dt>Thread</dt>
                <dd>
                  {plain(message.thread)} <Pause conversations={[`thread:${message.thread}`]} name={message.thread} />
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
            <dt>Id</dt>
            <dd>
              <code>{id}</code>{" "}
              <button type="button" class="quiet" onClick={() => void copy(location.href)}>
                Copy link
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
          <Files of={message.attachments ?? []} />
        </>
      ) : (
        <p>This message is not among those that are loaded.</p>
      )}
      <h2>Receipts</h2>
      {list === null && <p>Asking…</p>}
      {list?.length === 0 && <p>It had no recipient.</p>}
      {list && list.length > 0 && (
        <p class={unseen ? "unseen" : ""}>
          {unseen ? `Not seen by ${unseen} of ${list.length}` : `Seen by all ${list.length}`}
        </p>
      )}
      {list?.map((receipt) => (
        <section class="receipt" key={receipt.member}>
          <h3>
            {plain(receipt.member)} <span class={`state ${receipt.state}`}>{receipt.state}</span>
            {receipt.way && !SEEN.has(receipt.state) ? <span class="mark">by {receipt.way}</span> : null}
          </h3>
          <ol>
            {receipt.steps.map((step, index) => (
              <li key={index}>
                <time>{timeOf(step.at_ms)}</time> <span class={`state ${step.state}`}>{step.way || step.state}</span>{" "}
                {step.protocol ? <Wire name={step.protocol} /> : null} {plain(step.evidence ?? "")}
              </li>
            ))}
          </ol>
        </section>
      ))}
    </aside>
  );
}

/** Files, to be downloaded; a page never opens them. */
export function Files({ of }: { of: readonly Attachment[] }) {
  if (!of.length) return null;
  return (
    <ul class="files" aria-label="Files">
      {of.map((file) => (
        <li key={file.path}>
          <a href={fileAddress(file.path)} download={file.name || "file"} rel="noopener">
            {plain(file.name || file.path)}
          </a>{" "}
          <small>
            {file.size?.toLocaleString()} bytes, {plain(file.media_type ?? "")}
          </small>
        </li>
      ))}
    </ul>
  );
}

async function copy(text: string): Promise<void> {
  await navigator.clipboard.writeText(text);
  tell("Copied.");
}
