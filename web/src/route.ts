// Addresses: everything that a person can look at has an address after the `#`, so that a person can keep and share it.
import { signal } from "@preact/signals";
import type { Message } from "./hub.ts";

export interface Where {
  page: string;
  /** Id or name of the thing on that page. */
  of: string;
  /** A message that is shown beside it. */
  message: string;
  /** Offset of that message in the log, if the address has it. */
  at: number | null;
}

function read(): Where {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [page = "", ...rest] = path.split("/");
  const asked = new URLSearchParams(query);
  const at = /^\d{1,15}$/.test(asked.get("at") ?? "") ? Number(asked.get("at")) : null;
  return { page: page || "home", of: decoded(rest.join("/")), message: asked.get("m") ?? "", at };
}

/** An address that somebody cut short or made up is still an address. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const where = signal<Where>(read());
addEventListener("hashchange", () => {
  where.value = read();
});

/** A message as an address names it: its offset finds it in the log, and its id proves that it is the right one. */
type Named = Pick<Message, "id" | "offset">;

export function address(page: string, of = "", message: Named | null = null): string {
  const path = of ? `#/${page}/${encodeURIComponent(of)}` : `#/${page}`;
  return message ? `${path}?m=${encodeURIComponent(message.id)}&at=${message.offset}` : path;
}

export function go(page: string, of = ""): void {
  location.hash = address(page, of);
}

/** Show a message beside what one looks at now. */
export const besides = (message: Named): string => address(where.value.page, where.value.of, message);
