// Members who wait for the viewer, with the reason: a blocked objective, or a question without an answer.
import { computed } from "@preact/signals";
import { latest } from "./places.tsx";
import type { Message, Objective } from "./hub.ts";
import { members, objectives, visitor } from "./state.ts";

/** True if a blocked objective waits for this member: it gave the work, or the reason names it. */
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
  /** The last message to the viewer, if the viewer wrote nothing after it. */
  asked: Message | null;
}

/** Things for which each member waits from the viewer. A member that waits for nothing is not in it. */
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
