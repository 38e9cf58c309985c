// A search as a person types it: words for the hub's index, and filters such as `from:alice`.

/** A search. What the hub cannot filter (protocol, files), the page does. */
export interface Query {
  /** Words, "phrases" and begin* for the hub's index. */
  words: string;
  from: string;
  /** `@member`, `#channel`, `obj:<id>`, or a thread. */
  in: string;
  /** As it was typed: `7d`, `2026-11-18`. */
  since: string;
  protocol: string;
  file: boolean;
  /** Filters that mean nothing. */
  wrong: readonly string[];
}

export const NO_QUERY: Query = { words: "", from: "", in: "", since: "", protocol: "", file: false, wrong: [] };

const TOKEN = /(?:[a-z]+:)?"[^"]*"|\S+/g;
const FILTER = /^(from|in|since|protocol|has):(.*)$/s;
const UNITS_MS = { m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 } as const;

/** Return the time from which messages are wanted, or nothing if the text is no time. */
export function sinceMs(text: string, now: number): number | null {
  const [, count = "", unit = ""] = /^(\d{1,4})([mhdw])$/.exec(text) ?? [];
  if (unit) return now - Number(count) * UNITS_MS[unit as keyof typeof UNITS_MS];
  // A day begins where the reader is.
  const day = /^\d{4}-\d{2}-\d{2}$/.test(text) ? new Date(`${text}T00:00:00`).getTime() : NaN;
  return Number.isNaN(day) ? null : day;
}

export function parse(text: string): Query {
  const words: string[] = [];
  const wrong: string[] = [];
  const found = { ...NO_QUERY };
  for (const token of text.match(TOKEN) ?? []) {
    const [, name = "", quoted = ""] = FILTER.exec(token) ?? [];
    const value = quoted.replace(/^"(.*)"$/s, "$1");
    if (!name) words.push(token);
    else if (name === "has") {
      if (/^files?$/.test(value)) found.file = true;
      else wrong.push(token);
    } else if (!value || (name === "since" && sinceMs(value, 0) === null)) wrong.push(token);
    else if (name === "from") found.from = value.replace(/^@/, "");
    else found[name as "in" | "since" | "protocol"] = value;
  }
  return { ...found, words: words.join(" "), wrong };
}

/** Return a search as a person would type it. */
export function spelled({ words, from, in: place, since, protocol, file }: Query): string {
  const filter = (name: string, value: string) =>
    value ? [`${name}:${/\s/.test(value) ? `"${value.replaceAll('"', "")}"` : value}`] : [];
  return [
    ...(words ? [words] : []),
    ...filter("from", from),
    ...filter("in", place),
    ...filter("since", since),
    ...filter("protocol", protocol),
    ...filter("has", file ? "file" : ""),
  ].join(" ");
}

const escaped = (word: string) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

/** Return a pattern that finds the words of a search in a text, or nothing if there are no words. */
export function pattern(words: string): RegExp | null {
  const terms = (words.match(/"[^"]*"|\S+/g) ?? [])
    .map((term) => ({ text: term.replace(/^"(.*)"$/, "$1").replace(/\*+$/, ""), ending: !term.endsWith("*") }))
    .filter(({ text }) => /[\p{L}\p{N}]/u.test(text))
    .map(({ text, ending }) => `${escaped(text).replace(/\s+/g, "\\s+")}${ending ? "(?![\\p{L}\\p{N}])" : ""}`);
  return terms.length ? new RegExp(`(?<![\\p{L}\\p{N}])(?:${terms.join("|")})`, "giu") : null;
}
