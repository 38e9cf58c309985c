// A message that a person writes: its text and files, the names that complete it, and its way to the hub.
import { useMemo, useRef, useState } from "preact/hooks";
import { sendFiles, upload } from "./api.ts";
import type { Attachment, Message } from "./hub.ts";
import { attempt, channels, hub, members, tell, visitor } from "./state.ts";
import { GENERAL, type Place } from "./talk.ts";

const NAMES_MAX = 6;

export interface Utterance {
  body: string;
  urgent: boolean;
  files: readonly Attachment[];
  reply: Message | null;
  /** The thread in which it is written; null if it is written at a place. */
  thread: string | null;
}

/** Say something. With files it goes by another way, on which they are shown to whoever receives it. */
export async function say(target: Place, { body, urgent, files, reply, thread }: Utterance): Promise<void> {
  const within = thread ?? reply?.thread;
  const context = { ...(reply ? { reply_to: reply.id } : {}), ...(within ? { thread: within } : {}) };
  const known =
    target === GENERAL || !target.startsWith("#") || channels.value.some((one) => `#${one.name}` === target);
  if (files.length && !known) throw new Error(`Nobody is reached at ${target}.`);
  const recipients = files.length
    ? await sendFiles({ target, body, urgent, ...context }, files)
    : (await hub.ask("send", { target, body, ...(urgent ? { priority: "urgent" as const } : {}), ...context }))
        .recipients;
  if (recipients === 0) tell("Accepted, but nobody is there to receive it.");
}

interface Context {
  target: Place;
  thread: string | null;
  reply: Message | null;
  /** Called when it was sent. */
  done(): void;
}

/** A message that is being written. */
export function useDraft({ target, thread, reply, done }: Context) {
  const [text, setText] = useState("");
  const [urgent, setUrgent] = useState(false);
  const [files, setFiles] = useState<readonly Attachment[]>([]);
  const sending = useRef(false);

  const send = async () => {
    const body = text.trim();
    if (!body || sending.current) return;
    sending.current = true;
    const sent = await attempt(() => say(target, { body, urgent, files, reply, thread }));
    sending.current = false;
    if (!sent) return;
    // Text and files that were added in between belong to the next message.
    setText((now) => (now.trim() === body ? "" : now));
    setUrgent(false);
    setFiles((now) => now.filter((file) => !files.includes(file)));
    done();
  };
  const attach = (picked: readonly File[]) =>
    attempt(async () => {
      const uploaded = await Promise.all(picked.map((file) => upload(file, visitor.value?.member ?? "")));
      setFiles((before) => [...before, ...uploaded]);
    });
  return { text, setText, urgent, setUrgent, files, attach, detach: () => setFiles([]), send };
}

/** Names that complete the last word of a text. */
export function useNames(text: string, setText: (text: string) => void) {
  const [pick, setPick] = useState(0);
  const word = /(?:^|\s)([@#][\w.-]*)$/.exec(text)?.[1] ?? "";
  const near = useMemo(() => namesLike(word), [word, members.value, channels.value]);
  const at = Math.min(pick, near.length - 1);
  return {
    near,
    chosen: near[at],
    /** Choose the next name, or the one before. */
    move: (by: 1 | -1) => setPick((at + by + near.length) % near.length),
    complete: (name: string) => {
      setText(`${text.slice(0, text.length - word.length)}${name} `);
      setPick(0);
    },
  };
}

function namesLike(word: string): readonly string[] {
  if (!word) return [];
  const all = [...members.value.map((member) => `@${member.name}`), ...channels.value.map((one) => `#${one.name}`)];
  return all.filter((name) => name.toLowerCase().startsWith(word.toLowerCase()) && name !== word).slice(0, NAMES_MAX);
}
