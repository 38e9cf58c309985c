// Search in everything that the viewer may see, by the hub's full-text index.
import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import type { Message } from "./hub.ts";
import { Who, Wire } from "./message.tsx";
import { beginning, plain } from "./plain.ts";
import { address, besides, go, where } from "./route.ts";
import { attempt, hub, visitor } from "./state.ts";
import { dayOf, timeOf } from "./clock.ts";
import { happening, nameOf, placeOf } from "./talk.ts";

const PAGE = 50;

export function Search() {
  const query = where.value.of;
  const [text, setText] = useState(query);
  const [found, setFound] = useState<readonly Message[] | null>(null);
  const [more, setMore] = useState(false);
  const live = hub.link.value === "live";
  const read = (before?: number) =>
    attempt(async () => {
      const fields = { query, limit: PAGE, ...(before === undefined ? {} : { before }) };
      const { messages: page } = await hub.ask("search", fields);
      // The answer may come after the next query was sent.
      if (where.value.of !== query) return;
      setMore(page.length === PAGE);
      setFound((known) => (before === undefined ? page : [...(known ?? []), ...page]));
    });
  // Before the next painting, and only for another query, so that it does not replace text that is typed in between.
  useLayoutEffect(() => setText(query), [query]);
  useEffect(() => {
    setFound(null);
    if (query && live) void read();
  }, [query, live]);
  const last = found?.at(-1);
  return (
    <section class="page">
      <header class="bar">
        <h1>Search</h1>
        <form
          class="line"
          onSubmit={(event) => {
            event.preventDefault();
            go("search", text.trim());
          }}
        >
          <input
            type="search"
            aria-label="Words to look for"
            placeholder='Words, "phrases", begin*'
            value={text}
            onInput={(event) => setText(event.currentTarget.value)}
          />
          <button type="submit">Search</button>
        </form>
        {found && <span class="count">{more ? `the newest ${found.length}` : `${found.length} found`}</span>}
      </header>
      <div class="scroll" tabIndex={0} role="region" aria-label="Content">
        {!query && (
          <p class="empty">
            Every word must be there; quotes keep a phrase together, and a star stands for any ending.
          </p>
        )}
        {found?.length === 0 && <p class="empty">Nothing that you may see says that.</p>}
        {found?.map((message) => {
          const place = placeOf(message, visitor.value?.member ?? "");
          return (
            <a class="found" key={message.id} href={besides(message)}>
              <span>
                <Who message={message} /> <Wire name={message.protocol} />
                <time>
                  {dayOf(message.sent_at_ms)} {timeOf(message.sent_at_ms)}
                </time>{" "}
                in {plain(nameOf(place))}
              </span>
              <span class="says">{happening(message) ?? beginning(message.body, 400)}</span>
            </a>
          );
        })}
        {more && last && (
          <p class="line">
            <button type="button" onClick={() => void read(last.offset)}>
              Older ones
            </button>
            <a href={address("live")}>Back to live</a>
          </p>
        )}
      </div>
    </section>
  );
}
