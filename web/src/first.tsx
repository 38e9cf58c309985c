// The first steps on an empty hub: three commands, each with a button that copies it, and a mark when it is done.
import { useEffect, useState } from "preact/hooks";
import type { Member, Message } from "./hub.ts";
import { copy } from "./share.tsx";
import { hub, members, messages, readRoster, visible, visitor } from "./state.ts";

/** A person who has just run a command looks at its mark. */
const LOOK_MS = 1500;
/** While `tieline connect` tests a connection, a member of this name is there, and the agent's sessions are the test's. */
const CANARY = /^connect-canary-/;

/** An agent program: its name, the word of `tieline connect`, its command, and the name that its agent gets. */
interface Program {
  title: string;
  word: string;
  command: string;
  agent: string;
}

const CLAUDE: Program = { title: "Claude Code", word: "claude-code", command: "claude", agent: "claude" };
const PROGRAMS: readonly Program[] = [
  CLAUDE,
  { title: "Codex", word: "codex", command: "codex", agent: "codex" },
  { title: "Gemini CLI", word: "gemini", command: "gemini", agent: "gemini" },
];

interface Step {
  title: string;
  command: string;
  done: boolean;
}

/** True if a member is there, and not only its connection is tested. */
export const isThere = (name: string, roster: readonly Member[]): boolean =>
  roster.some((member) => member.name === name && member.sessions.length > 0) &&
  !roster.some((member) => CANARY.test(member.name));

/** True if no agent has joined yet: none is there, and none has said anything that the page knows. */
export function isEmpty(roster: readonly Member[], said: readonly Message[], viewer: string): boolean {
  const agents = roster.filter(({ name, kind }) => name !== viewer && kind !== "human" && kind !== "script");
  if (agents.some(({ name, sessions }) => sessions.length > 0 && isThere(name, roster))) return false;
  const names = new Set(agents.map(({ name }) => name));
  return !said.some(({ from, target }) => names.has(from) && !CANARY.test(target.slice(1)));
}

/** True if the agent has got what the viewer said to it last. */
function isReached(member: Member | undefined, said: readonly Message[], viewer: string): boolean {
  const last = said.findLast(({ from, target }) => from === viewer && target === `@${member?.name}`);
  return !!last && !!member?.evidence && member.evidence.at_ms >= last.sent_at_ms;
}

/** Return the steps that connect an agent. `joined` is true if it was there since the page is open. */
export function stepsFor(
  { word, command }: Pick<Program, "word" | "command">,
  name: string,
  {
    roster,
    said,
    viewer,
    joined,
  }: { roster: readonly Member[]; said: readonly Message[]; viewer: string; joined: boolean },
): readonly Step[] {
  const member = roster.find((one) => one.name === name);
  return [
    { title: "Connect it", command: `tieline connect ${word} --as ${name}`, done: !!member },
    { title: "Start it", command, done: !!member && joined },
    {
      title: "Write to it",
      command: `tieline send @${name} "Hello. Who are you?" --as ${viewer}`,
      done: isReached(member, said, viewer),
    },
  ];
}

export function FirstSteps() {
  const [program, setProgram] = useState(CLAUDE);
  const [named, setNamed] = useState("");
  const [seen, setSeen] = useState<readonly string[]>([]);
  const name = named || program.agent;
  const live = hub.link.value === "live" && visible.value;
  useEffect(() => {
    if (!live) return;
    const timer = setInterval(() => void readRoster().catch(() => undefined), LOOK_MS);
    return () => clearInterval(timer);
  }, [live]);
  const roster = members.value;
  useEffect(() => {
    if (isThere(name, roster) && !seen.includes(name)) setSeen([...seen, name]);
  }, [name, roster]);
  const viewer = visitor.value?.member ?? "you";
  const steps = stepsFor(program, name, { roster, said: messages.value, viewer, joined: seen.includes(name) });
  return (
    <section class="first" aria-labelledby="first">
      <h2 id="first">Connect your first agent</h2>
      <p>Run these commands in a terminal on the hub's machine. This page sees when each one is done.</p>
      <div class="line">
        <label>
          Program{" "}
          <select
            value={program.word}
            onChange={(event) => setProgram(PROGRAMS.find(({ word }) => word === event.currentTarget.value) ?? CLAUDE)}
          >
            {PROGRAMS.map(({ word, title }) => (
              <option key={word} value={word}>
                {title}
              </option>
            ))}
          </select>
        </label>
        <label>
          Name of the agent{" "}
          <input
            value={named}
            placeholder={program.agent}
            maxLength={64}
            onInput={(event) => setNamed(event.currentTarget.value.replace(/[^\w.-]/g, ""))}
          />
        </label>
      </div>
      <ol>
        {steps.map(({ title, command, done }) => (
          <li key={title} class={done ? "done" : ""}>
            <span class="check" aria-hidden="true">
              {done ? "✓" : ""}
            </span>
            <span>
              {title} <span class="sr">{done ? "(done)" : "(not done yet)"}</span>
            </span>
            <code>{command}</code>
            <button type="button" aria-label={`Copy: ${title}`} onClick={() => void copy(command)}>
              Copy
            </button>
          </li>
        ))}
      </ol>
      <p class="sr" role="status">
        {steps.every(({ done }) => done) ? `${name} has joined, and got your message.` : ""}
      </p>
      <p>
        Another program, a script, or another machine: <a href="/docs/start/">the quick start</a>.
      </p>
    </section>
  );
}
