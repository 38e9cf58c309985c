// Message bodies are what models wrote: markdown becomes a few harmless elements, and everything else stays text.
import DOMPurify from "dompurify";
import MarkdownIt from "markdown-it";

// No HTML, no pictures (a picture from elsewhere tells that it was looked at), no guessing of links.
const markdown = new MarkdownIt("default", { html: false, linkify: false, breaks: true }).disable(["image"]);

const ALLOWED = {
  ALLOWED_TAGS: [
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "s",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
  ],
  ALLOWED_ATTR: ["href"],
  ALLOWED_URI_REGEXP: /^https?:/i,
};
const LONG = 20_000;

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("rel", "noopener noreferrer nofollow");
    node.setAttribute("target", "_blank");
  }
});

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** Text with what one cannot see made visible, so that it cannot pose as something else. */
export const plain = (text: string): string =>
  text.replace(HIDDEN, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function Prose({ text }: { text: string }) {
  const shown = plain(text);
  if (shown.length > LONG) return <pre class="prose raw">{shown}</pre>;
  const html = DOMPurify.sanitize(markdown.render(shown), ALLOWED);
  return <div class="prose" dangerouslySetInnerHTML={{ __html: html }} />;
}
