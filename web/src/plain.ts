// Text of others, with its invisible characters made visible.

// Controls, what reorders text, what has no width, and tags, which people do not see and models read. Joiners stay:
// scripts and emoji are written with them.
const HIDDEN =
  // oxlint-disable-next-line no-control-regex -- controls are what it looks for
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\u{e0000}-\u{e01ef}\p{Cs}]/gu;

/** Return a text with its invisible characters made visible, so that it cannot look like something else. */
export const plain = (text: string): string =>
  text.replace(HIDDEN, (sign) => {
    const code = (sign.codePointAt(0) ?? 0).toString(16);
    return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
  });

/** The first characters of a text, which may be very long. */
export const beginning = (text: string, most: number): string =>
  plain(text.length > most ? text.slice(0, most).replace(/[\ud800-\udbff]$/, "") : text);

const MARKDOWN: readonly [RegExp, string][] = [
  [/^ {0,3}(?:```|~~~).*$/gm, ""],
  [/^ {0,3}(?:#{1,6}|>+|[-*+]|\d{1,3}[.)])(?= )/gm, ""],
  [/!?\[([^\]\n]*)\]\([^)\s]*\)/g, "$1"],
  [/(\*\*|__|~~)(?=\S)(.*?\S)\1/g, "$2"],
  [/(?<![\w*])[*_](?=[^\s*_])([^*_\n]*[^\s*_])[*_](?![\w*])/g, "$1"],
  [/`+([^`\n]+)`+/g, "$1"],
];

/** The beginning of a body on one line, without the signs of markdown. */
export function oneLine(text: string, most: number): string {
  let found = text.slice(0, 4 * most);
  for (const [sign, words] of MARKDOWN) found = found.replace(sign, words);
  return beginning(found.replace(/\s+/g, " ").trim(), most);
}
