// Commands of the terminal, and requests to the hub, that show the same as a page.
import type { Message } from "./hub.ts";
import { type Query, parse, sinceMs } from "./query.ts";
import type { Where } from "./route.ts";
import { BETWEEN, GENERAL, type Place, targetOf, threadOf } from "./talk.ts";

export interface Asks {
  command: string;
  /** Path and query of the request. */
  path: string;
  /** Condition of jq for the messages that the page shows; empty if the answer has no others. */
  only?: string;
}

/** Messages that one answer of the hub has at most. */
const PAGE_MAX = 1000;
/** Signs that a terminal could take for a key or an order when a command is pasted. */
// oxlint-disable-next-line no-control-regex -- controls are what it looks for
const SIGNS = /[\u0000-\u001f\u007f-\u009f]/g;

/** Return a text as one word of a shell's command line. */
export function word(text: string): string {
  if (/^[\w@%+=:,./-]+$/.test(text)) return text;
  if (text.search(SIGNS) < 0) return `'${text.replaceAll("'", String.raw`'\''`)}'`;
  const code = (sign: string) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return `$'${text.replace(/['\\]/g, String.raw`\$&`).replace(SIGNS, code)}'`;
}

/** Return a command with an argument, which is no option even if it begins like one. */
const withArgument = (command: string, argument: string): string =>
  `${command} ${argument.startsWith("-") ? "-- " : ""}${word(argument)}`;

function request(path: string, fields: Record<string, string | number | null>): string {
  const given = Object.entries(fields).filter(([, value]) => value !== null && value !== "");
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return query ? `${path}?${query}` : path;
}

/** Return the command and the request that show the same as a page; null if none do. */
export function asksOf({ page, of }: Pick<Where, "page" | "of">, everything: boolean, now: number): Asks | null {
  switch (page) {
    case "live":
      return { command: "tieline history", path: request("/api/messages", all(everything)) };
    case "talk":
      return asksAt(of || GENERAL, everything);
    case "search":
      return asksFor(parse(of), everything, now);
    case "home":
    case "members":
      return { command: "tieline members", path: request("/api/members", { name: of }) };
    case "objectives":
      return of
        ? { command: withArgument("tieline objectives view", of), path: `/api/objectives/${encodeURIComponent(of)}` }
        : asksOfWork("");
    case "insights":
      return { command: "tieline pipeline report", path: "/api/insights" };
    default:
      return null;
  }
}

const all = (everything: boolean) => (everything ? { everything: "true" } : {});
const json = (text: string): string => JSON.stringify(text);

/** Return how to list objectives, of everybody or of one assignee. */
export const asksOfWork = (assignee: string): Asks => ({
  command: `tieline objectives list --all${assignee ? ` --assignee=${word(assignee)}` : ""}`,
  path: request("/api/objectives", { assignee }),
});

/** Return how to read the conversation at a place. */
export function asksAt(place: Place, everything: boolean): Asks {
  const thread = threadOf(place);
  if (thread !== null)
    return {
      command: `tieline history --limit ${PAGE_MAX}`,
      path: request("/api/messages", { ...all(everything), limit: PAGE_MAX }),
      only: `.thread == ${json(thread)} or .id == ${json(thread)}`,
    };
  if (targetOf(place) === null) {
    const [one = "", other = ""] = place.split(BETWEEN);
    const said = (from: string, to: string) => `(.from == ${json(from)} and .target == ${json(`@${to}`)})`;
    return {
      // On the hub's machine, its operator reads as one of the two.
      command: `tieline history --as=${word(one)} ${word(`@${other}`)}`,
      path: request("/api/messages", { ...all(everything), limit: PAGE_MAX }),
      only: `${said(one, other)} or ${said(other, one)}`,
    };
  }
  const fields = { with: place, ...(place.startsWith("@") ? {} : all(everything)) };
  return { command: withArgument("tieline history", place), path: request("/api/messages", fields) };
}

/** Return how to search; null if nothing is searched. */
function asksFor(query: Query, everything: boolean, now: number): Asks | null {
  const { words, from, in: place, since, protocol, file } = query;
  const from_ms = since ? sinceMs(since, now) : null;
  const known = /^(@|#|obj:)/.test(place);
  const only = [
    ...(protocol ? [`.protocol == ${json(protocol)}`] : []),
    ...(file ? ["(.attachments | length) > 0"] : []),
  ];
  if (words) {
    const options = [
      ...(from ? [`--from=${word(from)}`] : []),
      ...(place ? [`--in=${word(place)}`] : []),
      ...(since ? [`--since=${word(since)}`] : []),
      ...(only.length ? [`--limit ${PAGE_MAX}`] : []),
    ];
    return {
      command: withArgument(["tieline search", ...options].join(" "), words),
      path: request("/api/search", {
        q: words,
        from,
        in: place,
        since: from_ms,
        limit: only.length ? PAGE_MAX : null,
      }),
      only: only.join(" and "),
    };
  }
  if (from) only.push(`.from == ${json(from)}`);
  if (place && !known) only.push(`(.thread == ${json(place)} or .reply_to == ${json(place)})`);
  if (from_ms !== null) only.push(`.sent_at_ms >= ${from_ms}`);
  if (!known && !only.length) return null;
  const more = only.length ? PAGE_MAX : null;
  const history = more ? `tieline history --limit ${more}` : "tieline history";
  const fields = { ...(place.startsWith("@") ? {} : all(everything)), limit: more };
  return {
    command: known ? withArgument(history, place) : history,
    path: request("/api/messages", { with: known ? place : "", ...fields }),
    only: only.join(" and "),
  };
}

/** Return how to ask for the receipts of a message. */
export const asksAbout = ({ id, offset }: Pick<Message, "id" | "offset">): Asks => ({
  command: `tieline receipts ${offset}`,
  path: `/api/messages/${encodeURIComponent(id)}/receipts`,
});

/** Return the command as it is typed. */
export const asCommand = ({ command, only }: Asks): string =>
  only ? `${asJson(command)} | jq ${word(`.[] | select(${only})`)}` : command;

/** Options come before an argument that may follow "--". */
const asJson = (command: string): string => command.replace(/^tieline \w+/, "$& --json");

/** Return the command that asks the hub over HTTP. It has no token, which would stay in the shell's history. */
export function asCurl(origin: string, { path, only }: Pick<Asks, "path" | "only">): string {
  const asked = `curl -H "Authorization: Bearer $TIELINE_TOKEN" ${word(`${origin}${path}`)}`;
  return only ? `${asked} | jq ${word(`.messages[] | select(${only})`)}` : asked;
}
