// Message bodies are what models wrote: markdown becomes a few harmless elements, and everything else stays text.
import DOMPurify from "dompurify";
import MarkdownIt from "markdown-it";
import { useMemo, useState } from "preact/hooks";

// No HTML, no pictures (a picture from elsewhere tells that it was looked at), no guessing of links.
const markdown = new MarkdownIt("default", { html: false, linkify: false, breaks: true }).disable(["image"]);

const ALLOWED = {
  // prettier-ignore
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["href"],
  ALLOWED_URI_REGEXP: /^https?:/i,
};
/** Longer than this, a body is shown as it is; markdown of that length is hardly meant to be read as such. */
const LONG = 20_000;
/** Longer than this, only its beginning is shown until one asks for all of it. */
const ENDLESS = 100_000;

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("rel", "noopener noreferrer nofollow");
    node.setAttribute("target", "_blank");
  }
});

// Controls, what reorders text, what has no width, and tags, which people do not see and models read. Joiners stay:
// scripts and emoji are written with them.
const HIDDEN =
  // oxlint-disable-next-line no-control-regex -- controls are what it looks for
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\u{e0000}-\u{e01ef}\p{Cs}]/gu;

/** Text with what one cannot see made visible, so that it cannot pose as something else. */
export const plain = (text: string): string =>
  text.replace(HIDDEN, (sign) => {
    const code = (sign.codePointAt(0) ?? 0).toString(16);
    return code.length > 4 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
  });

/** The first characters of a text, which may be very long. */
export const beginning = (text: string, most: number): string =>
  plain(text.length > most ? text.slice(0, most).replace(/[\ud800-\udbff]$/, "") : text);

export function Prose({ text }: { text: string }) {
  const [all, setAll] = useState(false);
  // Rows are drawn again whenever something is said; a body stays what it was.
  const html = useMemo(
    () => (text.length > LONG ? "" : DOMPurify.sanitize(markdown.render(plain(text)), ALLOWED)),
    [text],
  );
  if (text.length <= LONG) return <div class="prose" dangerouslySetInnerHTML={{ __html: html }} />;
  const rest = all ? 0 : Math.max(0, text.length - ENDLESS);
  return (
    <>
      <pre class="prose raw">{rest ? beginning(text, ENDLESS) : plain(text)}</pre>
      {rest > 0 && (
        <p class="count">
          and {rest.toLocaleString()} characters more.{" "}
          <button type="button" class="quiet" onClick={() => setAll(true)}>
            Show all of it
          </button>
        </p>
      )}
    </>
  );
}
