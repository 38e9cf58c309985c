// Bodies of messages, which models wrote: Markdown becomes a few harmless elements, and everything else stays text.
import DOMPurify from "dompurify";
import MarkdownIt from "markdown-it";
import { useMemo, useState } from "preact/hooks";
import { beginning, plain } from "./plain.ts";

// No HTML, no pictures (a picture from elsewhere reports that somebody looked), no guessed links.
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

export function Prose({ text }: { text: string }) {
  const [all, setAll] = useState(false);
  // Rows are drawn again for each new message, but a body does not change.
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
