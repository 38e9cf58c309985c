// Commands of the terminal, and requests to the hub, that show the same as a page.
import type { Message } from "./hub.ts";
import type { Where } from "./route.ts";
import { GENERAL, targetOf } from "./talk.ts";

export interface Asks {
  command: string;
  /** Address of the hub that answers the same; empty if only the command does. */
  path: string;
}

/** A word of a shell's command line. */
export const word = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;

const query = (fields: Record<string, string>): string => new URLSearchParams(fields).toString();

/** Return what a page asks of the hub; null if no command does. */
export function asksOf({ page, of }: Pick<Where, "page" | "of">, everything: boolean): Asks | null {
  switch (page) {
    case "live":
      return { command: "tieline history", path: `/api/messages${everything ? "?everything=true" : ""}` };
    case "talk":
      return asksAt(of || GENERAL, everything);
    case "search":
      return of ? { command: `tieline search ${word(of)}`, path: `/api/search?${query({ q: of })}` } : null;
    case "members":
      return { command: "tieline members", path: "" };
    case "objectives":
      return { command: of ? `tieline objectives show ${word(of)}` : "tieline objectives list", path: "" };
    case "insights":
      return { command: "tieline pipeline report", path: "/api/insights" };
    case "home":
      return { command: "tieline status", path: "" };
    default:
      return null;
  }
}

function asksAt(place: string, everything: boolean): Asks | null {
  // The hub has no history of a thread, and none of what two others say to each other.
  if (targetOf(place) === null) return null;
  const all = everything && !place.startsWith("@") ? { everything: "true" } : {};
  return {
    command: `tieline history ${word(place)}`,
    path: `/api/messages?${query({ with: place, ...all })}`,
  };
}

/** Return how to ask what became of a message. */
export const asksAbout = ({ id, offset }: Pick<Message, "id" | "offset">): Asks => ({
  command: `tieline receipts ${offset}`,
  path: `/api/messages/${encodeURIComponent(id)}/receipts`,
});

/** Return the command that asks the hub over HTTP. The token is not part of it: it would stay in the shell's history. */
export const asCurl = (origin: string, path: string): string =>
  `curl -H "Authorization: Bearer $TIELINE_TOKEN" ${word(`${origin}${path}`)}`;
