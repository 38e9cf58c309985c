// Remedies of a person for a message that does not go on: nudge, resend, discard. One click does each, wherever the
// message is shown.
import type { Message, Receipt } from "./hub.ts";
import { keysOf } from "./inbox.ts";
import { FINAL, lifeOf } from "./lives.ts";
import { oneLine, plain } from "./plain.ts";
import { attempt, byName, hub, visitor } from "./state.ts";

/** Recipients that one click reaches. More of them are chosen one by one. */
const AT_ONCE_MAX = 20;

export interface Remedy {
  name: "Nudge" | "Resend" | "Discard";
  /** Recipients that it is for. */
  to: readonly string[];
}

/** Return the remedies for a message with these receipts. Nobody reaches a member that is gone. */
export function remediesFor(
  { from, kind }: Pick<Message, "from" | "kind">,
  receipts: readonly Receipt[],
  me: string,
  isThere: (member: string) => boolean,
): readonly Remedy[] {
  const open = receipts.filter(({ state }) => !FINAL.has(state));
  const others = (some: readonly Receipt[]) =>
    some.map(({ member }) => member).filter((member) => member !== me && isThere(member));
  const found: readonly Remedy[] = [
    { name: "Nudge", to: others(open) },
    // An event is the hub's account of something, which nobody else says.
    {
      name: "Resend",
      to: from === me && kind !== "event" ? others(receipts.filter(({ state }) => state !== "acked")) : [],
    },
    { name: "Discard", to: open.some(({ member }) => member === me) ? [me] : [] },
  ];
  return found.filter(({ to }) => to.length > 0 && to.length <= AT_ONCE_MAX);
}

const ABOUT = {
  Nudge: ["Ask for it again, urgently", "was nudged."],
  Resend: ["Send it again; it takes the place of this one", "gets it again."],
  Discard: ["Nobody will handle it; its sender sees that", "discarded it."],
} as const;

/** The buttons for some recipients of a message. */
export function Remedies({ message, receipts }: { message: Message; receipts: readonly Receipt[] }) {
  const me = visitor.value?.member ?? "";
  const found = remediesFor(message, receipts, me, (member) => byName.value.has(member));
  if (!found.length) return null;
  return (
    <span class="remedies">
      {found.map(({ name, to }) => {
        const [title, done] = ABOUT[name];
        const who = name === "Discard" ? "You" : to.length === 1 ? plain(to[0] ?? "") : `Each of ${to.length}`;
        return (
          <button
            type="button"
            key={name}
            title={name === "Discard" ? title : `${title}: ${to.map(plain).join(", ")}`}
            onClick={() => void attempt(() => ACTS[name](message, to), `${who} ${done}`)}
          >
            {to.length > 1 ? `${name} ${to.length}` : name}
          </button>
        );
      })}
    </span>
  );
}

/** The buttons for all recipients, beside the bar that shows the message's life. */
export function RemediesOf({ message }: { message: Message }) {
  const receipts = lifeOf(message.id).value?.receipts;
  return receipts ? <Remedies message={message} receipts={receipts} /> : null;
}

const ACTS: Record<Remedy["name"], (message: Message, to: readonly string[]) => Promise<unknown>> = {
  // One after the other, so that a refusal ends it.
  Nudge: async (message, to) => {
    for (const member of to) await nudge(message, member);
  },
  Resend: async (message, to) => {
    for (const member of to) await resend(message, member);
  },
  Discard: discard,
};

/** Ask a recipient to look at a message. */
const nudge = ({ id, offset, body, thread }: Message, member: string) =>
  hub.ask("send", {
    target: `@${member}`,
    body: `Please look at message ${offset}: “${oneLine(body, 200)}”`,
    priority: "urgent",
    reply_to: id,
    ...(thread ? { thread } : {}),
  });

/** Say the same to one recipient again. What waits for it of the earlier message is superseded. */
const resend = (message: Message, member: string) =>
  hub.ask("send", {
    target: `@${member}`,
    body: message.body,
    supersedes: message.id,
    ...(message.title ? { title: message.title } : {}),
    ...(message.data ? { data: message.data } : {}),
    ...(message.level ? { level: message.level } : {}),
    ...(message.priority ? { priority: message.priority } : {}),
    ...(message.kind ? { kind: message.kind } : {}),
    ...(message.topic ? { topic: message.topic } : {}),
    ...(message.scope ? { scope: message.scope } : {}),
    ...(message.thread ? { thread: message.thread } : {}),
    ...(message.reply_to ? { reply_to: message.reply_to } : {}),
    ...(message.refs ? { refs: message.refs } : {}),
    ...(message.attachments ? { attachments: message.attachments } : {}),
  });

async function discard({ offset }: Message): Promise<void> {
  const key = (await keysOf([offset])).get(offset);
  if (key === undefined || key === null) throw new Error("It does not wait for you any more.");
  await hub.ask("discard", { keys: [[key, key]], reason: "not to be handled" });
}
