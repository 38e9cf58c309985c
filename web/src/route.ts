// Where one is: everything that can be looked at has an address after the `#`, so that it can be kept and passed on.
import { signal } from "@preact/signals";
import type { Message } from "./hub.ts";

export interface Where {
  page: string;
  /** What is looked at on that page. */
  of: string;
  /** A message that is shown beside it. */
  message: string;
  /** Where that message stands in the log, if the address says so. */
  at: number | null;
}

function read(): Where {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [page = "", ...rest] = path.split("/");
  const asked = new URLSearchParams(query);
  const at = /^\d{1,15}$/.test(asked.get("at") ?? "") ? Number(asked.get("at")) : null;
  return { page: page || "live", of: decoded(rest.join("/")), message: asked.get("m") ?? "", at };
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

/** What an address says of a message: its offset finds it in the log, its id says that it is the one. */
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
