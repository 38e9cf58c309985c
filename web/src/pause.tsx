// Conversations that stand still: agents looped in them, or somebody said so. For people and those who manage members.
import { Action } from "./action.tsx";
import { plain } from "./prose.tsx";
import { attempt, hub, now, pauses, readRoster, stewards } from "./state.ts";

/** What a person is asked for first: conversations that stand still until somebody lets them go on. */
export const Pauses = () => (
  <>
    {pauses.value.map((pause) => (
      <p class="alarm" key={pause.thread} role="alert">
        <span>
          <b>{plain(pause.thread === "*" ? "What is said to everybody" : pause.thread)}</b> is paused for{" "}
          {Math.max(1, Math.ceil((pause.until_ms - now.value) / 60_000))} min more: no agent can speak there.
        </span>
        <button
          type="button"
          onClick={() =>
            void attempt(async () => {
              await hub.ask("resume_thread", { thread: pause.thread });
              await readRoster();
            }, "It may go on.")
          }
        >
          Let it go on
        </button>
      </p>
    ))}
  </>
);

/** Pause conversations by hand, where that is for the viewer and they are not paused. */
export function Pause({ conversations, name }: { conversations: readonly string[]; name: string }) {
  const standing = new Set(pauses.value.map((pause) => pause.thread.split("+").toSorted().join("+")));
  if (!stewards.value || conversations.every((one) => standing.has(one.split("+").toSorted().join("+")))) return null;
  const pause = async () => {
    for (const thread of conversations) await hub.ask("pause_thread", { thread });
    await readRoster();
  };
  return (
    <Action name="Pause" title={`Pause ${plain(name)}`} act={pause} done="It is paused.">
      <p>For ten minutes, or until somebody lets it go on, no agent can speak there. People can.</p>
    </Action>
  );
}
