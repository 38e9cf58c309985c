// Who waits for the viewer, and for what: an objective that is blocked on them, a question that they did not answer.
import { computed } from "@preact/signals";
import { latest } from "./conversations.tsx";
import type { Message, Objective } from "./hub.ts";
import { members, objectives, visitor } from "./state.ts";

/** Whether a blocked objective waits for this member: it gave the work, or the reason names it. */
function waitsFor(objective: Objective, me: string): boolean {
  if (objective.status !== "blocked" || objective.assignee === me) return false;
  const named = (objective.block_reason ?? "").split(/[^\p{L}\p{N}._-]+/u).map((word) => word.replace(/\.+$/, ""));
  return objective.originator === me || named.includes(me);
}

/** Blocked objectives that wait for the viewer, by id. */
export const blockedOnMe = computed(() => {
  const me = visitor.value?.member ?? "";
  return new Map(objectives.value.filter((one) => waitsFor(one, me)).map((one) => [one.id, one]));
});

export interface Wait {
  blocked: readonly Objective[];
  /** What was said to the viewer last, if the viewer said nothing after it. */
  asked: Message | null;
}

/** What each member waits for from the viewer; who waits for nothing is not in it. */
export const waits = computed(() => {
  const found = new Map<string, Wait>();
  for (const { name } of members.value) {
    const blocked = [...blockedOnMe.value.values()].filter((one) => one.assignee === name);
    const last = latest.value.get(`@${name}`)?.last;
    const asked = last?.from === name && (last.kind ?? "chat") === "chat" ? last : null;
    if (blocked.length || asked) found.set(name, { blocked, asked });
  }
  return found;
});
