// Conversations that are held: agents answered each other too often, or somebody paused them. People see them, and
// members who may manage members.
import { Action } from "./action.tsx";
import { plain } from "./plain.ts";
import { attempt, hub, now, pauses, readRoster, stewards, visitor } from "./state.ts";
import { nameOf, placeNamed } from "./talk.ts";
import { computed, signal } from "@preact/signals";
import type { Pause as Standing } from "./hub.ts";

/** Conversations that are held. One whose limits are lifted is not held. */
const held = computed(() => pauses.value.filter((pause) => !pause.allowed));
const minutes = (until: number) => Math.max(1, Math.ceil((until - now.value) / 60_000));

const waiting = (count: number) => (count === 1 ? "1 message waits." : `${count || "No"} messages wait.`);

/** Alarms that the viewer has put away. One that comes later about the same conversation is shown again. */
const dismissed = signal<ReadonlySet<string>>(new Set());
const keyOf = (pause: Standing) => `${pause.thread} ${pause.until_ms}`;

const resume = (thread: string) =>
  attempt(async () => {
    await hub.ask("resume_thread", { thread });
    await readRoster();
  }, "Resumed.");

/** A held conversation as people call it. */
export const nameOfHeld = ({ thread }: Standing): string =>
  thread === "*" ? "What is said to everybody" : nameOf(placeNamed(thread, visitor.value?.member ?? ""));

/** The first thing that the page asks a person: to let held conversations go on. One line, which opens to all of it. */
export function Pauses() {
  const [pause, ...others] = held.value.filter((one) => !dismissed.value.has(keyOf(one)));
  if (!pause) return null;
  const dismiss = () => {
    dismissed.value = new Set([...dismissed.value, keyOf(pause)]);
  };
  return (
    <div class="alarm" key={pause.thread} role="alert">
      <details>
        <summary>
          <b>{plain(nameOfHeld(pause))}</b>{" "}
          {pause.by
            ? `is paused for ${minutes(pause.until_ms)} min more.`
            : `is held: agents answered each other too often. One message passes in ${minutes(pause.until_ms)} min.`}{" "}
          {waiting(pause.held ?? 0)}
        </summary>
        {plain(pause.reason ?? "")}
      </details>
      {others.length > 0 && <span class="count">and {others.length} more</span>}
      <button type="button" onClick={() => void resume(pause.thread)}>
        Resume
      </button>
      <button type="button" class="quiet" aria-label="Dismiss" onClick={dismiss}>
        ✕
      </button>
    </div>
  );
}

/** Pause conversations by hand, where that is for the viewer and they are not paused. */
export function Pause({ conversations, name }: { conversations: readonly string[]; name: string }) {
  const standing = new Set(held.value.map((pause) => pause.thread.split("+").toSorted().join("+")));
  if (!stewards.value || conversations.every((one) => standing.has(one.split("+").toSorted().join("+")))) return null;
  const pause = async () => {
    for (const thread of conversations) await hub.ask("pause_thread", { thread });
    await readRoster();
  };
  return (
    <Action name="Pause" title={`Pause ${plain(name)}`} act={pause} done="It is paused.">
      <p>
        Messages of agents and scripts are held there and kept, for ten minutes or until somebody lets it go on.
        Messages of people still pass.
      </p>
    </Action>
  );
}
