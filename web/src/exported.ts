// A conversation as a file: Markdown for people, JSON for programs.
import type { Message } from "./hub.ts";
import { plain } from "./plain.ts";
import { happening, nameOf, type Place } from "./talk.ts";

export interface Exported {
  place: Place;
  rows: readonly Message[];
  /** False if older messages are left out. */
  whole: boolean;
  /** Time of the export. */
  at_ms: number;
}

const iso = (ms: number) => new Date(ms).toISOString();
/** Text of others within a line of Markdown: it can neither end the line nor format it. */
const inline = (text: string) => plain(text.replace(/\s+/g, " ")).replace(/[\\`*_[\]<>#|~]/g, "\\$&");
/** Text of others as a quotation, so that nothing in a body looks like a message of somebody else. */
const quoted = (text: string) =>
  text
    .split(/\r\n|[\r\n\u2028\u2029]/)
    .map((line) => `> ${plain(line)}`.trimEnd())
    .join("\n");

export function asMarkdown({ place, rows, whole, at_ms }: Exported): string {
  const count = `${rows.length} ${rows.length === 1 ? "message" : "messages"}`;
  const numbers = new Map(rows.map((message) => [message.id, message.offset]));
  const parts = [
    `# ${inline(nameOf(place))}`,
    `${count}, exported at ${iso(at_ms)}.${whole ? "" : " Older messages are left out."}`,
  ];
  for (const message of rows) {
    const answers = message.reply_to ? numbers.get(message.reply_to) : undefined;
    const facts = [
      `**${inline(message.from)}**${message.verified === false ? " (unverified)" : ""}`,
      `to ${inline(message.target)}`,
      iso(message.sent_at_ms),
      `number ${message.offset}`,
      ...(answers === undefined ? [] : [`answers ${answers}`]),
      ...(message.priority === "urgent" ? ["urgent"] : []),
    ];
    parts.push(facts.join(" · "));
    if (message.title) parts.push(quoted(`**${inline(message.title)}**`));
    parts.push(quoted(happening(message) ?? message.body));
    for (const file of message.attachments ?? [])
      parts.push(`- file ${inline(file.name || file.path)}, ${file.size ?? 0} bytes`);
  }
  return `${parts.join("\n\n")}\n`;
}

export const asJson = ({ place, rows, whole, at_ms }: Exported): string =>
  `${JSON.stringify({ conversation: place, exported_at: iso(at_ms), whole, messages: rows }, null, 2)}\n`;

/** Name of the file of a conversation, without its ending. */
export const fileName = (place: Place): string =>
  `tieline-${
    nameOf(place)
      .replace(/[^\p{L}\p{N}._-]+/gu, "-")
      .replace(/^-+|-+$/g, "") || "conversation"
  }`.slice(0, 100);
