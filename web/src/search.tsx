// Search in everything that the viewer may see: the hub's full-text index finds words, and filters narrow them.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useState } from "preact/hooks";
import type { Message } from "./hub.ts";
import { Life } from "./life.tsx";
import { Who } from "./message.tsx";
import { places } from "./places.tsx";
import { oneLine, plain } from "./plain.ts";
import { type Query, parse, pattern, sinceMs, spelled } from "./query.ts";
import { RemediesOf } from "./remedies.tsx";
import { address, besides, go, where } from "./route.ts";
import { Select, same } from "./select.tsx";
import { Share } from "./share.tsx";
import { attempt, byName, hub, members, protocols, seesAll, visitor } from "./state.ts";
import { happening, nameOf, placeOf } from "./talk.ts";
import { When } from "./when.tsx";
import { Wire } from "./wire.tsx";

const PAGE = 50;
/** Pages that are read at once for filters that only the page knows. */
const PAGES_MAX = 20;
/** Characters of a body that are looked through, of those that are shown, and of those before the first found word. */
const BODY = 20_000;
const EXCERPT = 400;
const BEFORE = 100;

const SINCE = [
  ["", "any time"],
  ["1h", "last hour"],
  ["1d", "last day"],
  ["7d", "last 7 days"],
  ["30d", "last 30 days"],
] as const;

const isPlace = (place: string) => /^(@|#|chan:|obj:)/.test(place);

/** Read a page of messages before an offset. Without words the index has nothing to look for, so it is the history. */
async function readPage(query: Query, before: number | undefined, from_ms: number | null): Promise<readonly Message[]> {
  const range = { limit: PAGE, ...(before === undefined ? {} : { before }) };
  if (query.words) {
    const who = { ...(query.from ? { from: query.from } : {}), ...(query.in ? { place: query.in } : {}) };
    return (await hub.ask("search", { query: query.words, from_ms, ...who, ...range })).messages;
  }
  const peer = query.in.startsWith("@") ? query.in.slice(1) : query.in;
  const at = isPlace(query.in) ? { peer } : {};
  const everything = seesAll.value && !query.in.startsWith("@");
  return (await hub.ask("read_history", { ...at, ...range, everything })).messages;
}

/** True if a message passes the filters that the hub does not have. */
const passes = (message: Message, query: Query, from_ms: number | null): boolean =>
  (!query.protocol || message.protocol === query.protocol) &&
  (!query.file || !!message.attachments?.length) &&
  (!query.from || message.from === query.from) &&
  (!query.in || isPlace(query.in) || message.thread === query.in || message.reply_to === query.in) &&
  (from_ms === null || message.sent_at_ms >= from_ms);

interface Found {
  messages: readonly Message[];
  /** Offset before which older messages were not looked at yet; nothing at the end. */
  rest: number | undefined;
}

async function find(query: Query, before: number | undefined, isWanted: () => boolean): Promise<Found> {
  const from_ms = query.since ? sinceMs(query.since, Date.now()) : null;
  const found: Message[] = [];
  let rest = before;
  for (let count = 0; count < PAGES_MAX && found.length < PAGE && isWanted(); count++) {
    const page = await readPage(query, rest, from_ms);
    found.push(...page.filter((message) => passes(message, query, from_ms)));
    const last = page.at(-1);
    rest = last?.offset;
    if (!last || (from_ms !== null && last.sent_at_ms < from_ms)) return { messages: found, rest: undefined };
  }
  return { messages: found, rest };
}

export function Search() {
  const asked = where.value.of;
  const query = useMemo(() => parse(asked), [asked]);
  const [text, setText] = useState(asked);
  const [found, setFound] = useState<Found | null>(null);
  const live = hub.link.value === "live";
  const read = (before?: number) =>
    attempt(async () => {
      // The answer may come after the next query was sent.
      const isWanted = () => where.value.of === asked;
      const page = await find(query, before, isWanted);
      if (!isWanted()) return;
      setFound((known) => ({
        ...page,
        messages: [...(before === undefined ? [] : (known?.messages ?? [])), ...page.messages],
      }));
    });
  // Before the next painting, and only for another query, so that it does not replace text that is typed in between.
  useLayoutEffect(() => setText(asked), [asked]);
  useEffect(() => {
    setFound(null);
    if (asked.trim() && live) void read();
  }, [asked, live]);
  const said = found?.messages.length ?? 0;
  return (
    <section class="page">
      <header class="bar">
        <h1>Search</h1>
        <form
          class="line"
          role="search"
          onSubmit={(event) => {
            event.preventDefault();
            go("search", text.trim());
          }}
        >
          <input
            type="search"
            aria-label="Words to look for"
            placeholder="Words, from:alice in:#dev since:7d"
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <button type="submit">Search</button>
        </form>
        <Filters text={text} />
        {found && (
          <span class="count" role="status">
            {found.rest === undefined ? `${said} found` : `the newest ${said}`}
          </span>
        )}
        <Share />
      </header>
      <div class="scroll" tabIndex={0} role="region" aria-label="Content">
        {asked.trim() ? <Doubts query={query} /> : <Hint />}
        {asked.trim() && !found && <p class="empty">Searching…</p>}
        {found && !said && (
          <p class="empty">Nothing that you may see matches{found.rest === undefined ? "." : " yet."}</p>
        )}
        {found?.messages.map((message) => (
          <Row key={message.id} message={message} words={query.words} />
        ))}
        {found?.rest !== undefined && (
          <p class="line">
            <button type="button" onClick={() => void read(found.rest)}>
              Show older
            </button>
          </p>
        )}
      </div>
    </section>
  );
}

const Hint = () => (
  <div class="empty">
    <p>Every word must be there. Quotes keep a phrase together, and a star stands for any ending.</p>
    <p>
      Filters: <code>from:alice</code> <code>in:#dev</code> <code>in:@bob</code> <code>since:7d</code>{" "}
      <code>since:2026-11-18</code> <code>protocol:ac7</code> <code>has:file</code>. <code>in:</code> also takes the
      name of a thread.
    </p>
  </div>
);

/** The filters as fields. Each writes what a person could also type. */
function Filters({ text }: { text: string }) {
  const query = parse(text);
  const choose = (part: Partial<Query>) => go("search", spelled({ ...query, ...part }));
  const field = (
    name: "from" | "in" | "since" | "protocol",
    title: string,
    options: readonly (readonly [string, string])[],
  ) => <Select label={title} value={query[name]} choose={(value) => choose({ [name]: value })} options={options} />;
  const known = places.value.filter(isPlace).map((place) => [place, nameOf(place)] as const);
  return (
    <div class="filters" role="group" aria-label="Filters">
      {field("from", "From", [["", "from anyone"], ...same(members.value.map((member) => member.name))])}
      {field("in", "In", [["", "in any place"], ...known])}
      {field("since", "Since", SINCE)}
      {field("protocol", "Protocol", [["", "any protocol"], ...same(protocols.value)])}
      <label class="check">
        <input
          type="checkbox"
          checked={query.file}
          onChange={(event) => choose({ file: event.currentTarget.checked })}
        />{" "}
        with files
      </label>
    </div>
  );
}

/** Sentences about filters that cannot find anything. */
function Doubts({ query: { wrong, from, in: place } }: { query: Query }) {
  const doubts = wrong.map((one) => `“${one}” is no filter: it was not used.`);
  if (from && !byName.value.has(from)) doubts.push(`No member is called “${from}” now.`);
  if (/^[@#]/.test(place) && !places.value.includes(place) && place !== `@${visitor.value?.member}`)
    doubts.push(`There is no “${place}” now.`);
  return (
    <>
      {doubts.map((doubt) => (
        <p class="hint doubt" key={doubt}>
          {plain(doubt)}
        </p>
      ))}
    </>
  );
}

function Row({ message, words }: { message: Message; words: string }) {
  const place = placeOf(message, visitor.value?.member ?? "");
  const files = message.attachments?.length ?? 0;
  const who = <Who message={message} />;
  return (
    <article class="found">
      <p>
        {byName.value.has(message.from) ? <a href={address("members", message.from)}>{who}</a> : who} in{" "}
        <a href={address("talk", place, message)}>{plain(nameOf(place))}</a> <When ms={message.sent_at_ms} />{" "}
        <Wire name={message.protocol} />
        {files > 0 && <span class="mark">{files === 1 ? "1 file" : `${files} files`}</span>}
        <Life message={message} /> <RemediesOf message={message} />
      </p>
      <a class="says" href={besides(message)}>
        {message.title && (
          <b>
            <Marked text={plain(message.title)} words={words} />{" "}
          </b>
        )}
        <Marked text={happening(message) ?? oneLine(message.body, BODY)} words={words} />
      </a>
    </article>
  );
}

/** The part of a text around the first found word, with each found word marked. */
function Marked({ text, words }: { text: string; words: string }) {
  const sign = pattern(words);
  const first = sign ? text.search(sign) : -1;
  const start = first > EXCERPT - BEFORE ? first - BEFORE : 0;
  const shown = text.slice(start, start + EXCERPT);
  const parts: ComponentChildren[] = [start > 0 && "…"];
  let end = 0;
  for (const match of sign ? shown.matchAll(sign) : []) {
    parts.push(shown.slice(end, match.index), <mark>{match[0]}</mark>);
    end = match.index + match[0].length;
  }
  return (
    <>
      {parts}
      {shown.slice(end)}
      {start + EXCERPT < text.length && "…"}
    </>
  );
}
