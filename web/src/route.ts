// Where one is: everything that can be looked at has an address after the `#`, so that it can be kept and passed on.
import { signal } from "@preact/signals";

export interface Where {
  page: string;
  /** What is looked at on that page. */
  of: string;
  /** A message that is shown beside it. */
  message: string;
}

function read(): Where {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [page = "", ...rest] = path.split("/");
  const message = new URLSearchParams(query).get("m") ?? "";
  return { page: page || "live", of: decoded(rest.join("/")), message };
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

export function address(page: string, of = "", message = ""): string {
  const path = of ? `#/${page}/${encodeURIComponent(of)}` : `#/${page}`;
  return message ? `${path}?m=${encodeURIComponent(message)}` : path;
}

export function go(page: string, of = "", message = ""): void {
  location.hash = address(page, of, message);
}

/** Show a message beside what one looks at now. */
export const besides = (message: string): string => address(where.value.page, where.value.of, message);
