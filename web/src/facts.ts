// Facts that the hub is asked for again and again while a page shows them.
import { useEffect, useState } from "preact/hooks";
import { type Device, type Spent, pending, spentSince } from "./api.ts";
import type { Reach, Stuck } from "./hub.ts";
import { hub, may, permissions, visible } from "./state.ts";

const DEVICES_MS = 5000;
const STUCK_MS = 15_000;
const SPENT_MS = 60_000;
const REACHES_MS = 60_000;
/** A message that nobody saw for this long is stuck. */
export const STUCK_AFTER_MS = 5 * 60_000;
const STUCK_MAX = 200;

/**
 * Return the last answer to a question that is asked again while the page is visible, and the function that asks now. It
 * is also asked when `changed` is another value.
 */
function useAgain<T>(ask: () => Promise<T>, none: T, every: number, changed?: unknown): [T, () => Promise<void>] {
  const [found, setFound] = useState(none);
  const read = async () => {
    // The answer before stays until the next one. The page itself says that the connection is lost.
    const answer = await ask().catch(() => null);
    if (answer !== null) setFound(answer);
  };
  const live = hub.link.value === "live" && visible.value;
  useEffect(() => {
    if (!live) return;
    void read();
    const timer = setInterval(() => void read(), every);
    return () => clearInterval(timer);
  }, [live, permissions.value, changed]);
  return [found, read];
}

/** The devices that wait for a token, for those who may give them one. */
export const useDevices = () =>
  useAgain<readonly Device[]>(async () => (may("members.manage") ? await pending() : []), [], DEVICES_MS);

export interface Stuckness {
  unseen: readonly Stuck[];
  dead: readonly Stuck[];
}

/** Deliveries that nobody saw for a while, and those that died. */
export const useStuck = () =>
  useAgain<Stuckness>(
    () => hub.ask("read_stuck", { older_ms: STUCK_AFTER_MS, limit: STUCK_MAX }),
    { unseen: [], dead: [] },
    STUCK_MS,
  )[0];

/** Model calls since midnight; null for those who may not read activity, and until they are known. */
export const useSpent = (changed?: unknown) =>
  useAgain<readonly Spent[] | null>(
    async () => (may("activity.read") ? await spentSince(new Date().setHours(0, 0, 0, 0)) : null),
    null,
    SPENT_MS,
    changed,
  )[0];

/** The ways of members, for those who may read them. Members without an answer are left out. */
export const useReaches = (names: readonly string[]) =>
  useAgain<ReadonlyMap<string, Reach>>(
    async () => {
      if (!may("members.manage")) return new Map();
      const asked = names.map(async (name) => [name, (await hub.ask("reach", { name })).reach] as const);
      const answers = await Promise.allSettled(asked);
      return new Map(answers.flatMap((one) => (one.status === "fulfilled" ? [one.value] : [])));
    },
    new Map(),
    REACHES_MS,
    names.join(" "),
  )[0];
