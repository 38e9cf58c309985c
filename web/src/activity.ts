// Activity of members, as their programs report it: read when a page about a member opens, and followed while it stays.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { Activity } from "./hub.ts";
import { hub, may, permissions, visitor } from "./state.ts";

const PAGE = 50;
/** Events that a page keeps. Events may be large: each model call has all that the model was told. */
const KEPT_MAX = 500;

/** Rows that came for members that are followed, since the connection began. */
const came = signal<readonly Activity[]>([]);
/** Members that are followed over this connection. */
const followed = new Set<string>();

hub.did = (rows) => {
  came.value = [...came.value, ...rows].slice(-KEPT_MAX);
};
hub.link.subscribe((link) => {
  if (link !== "live") followed.clear();
});

/** True if the viewer may see what a member does. */
export const mayWatch = (name: string): boolean => may("activity.read") || name === visitor.value?.member;

async function follow(name: string): Promise<void> {
  if (followed.has(name)) return;
  followed.add(name);
  await hub.ask("follow_activity", { member: name });
}

/** Return those of the rows that are not known. Two pages have the rows of the moment between them in common. */
function unknown(known: readonly Activity[], rows: readonly Activity[]): readonly Activity[] {
  const offsets = new Set(known.map(({ offset }) => offset));
  return rows.filter(({ offset }) => !offsets.has(offset));
}

export interface Doings {
  /** Events of the member, the newest first. */
  rows: readonly Activity[];
  /** True if the hub has nothing older. */
  whole: boolean;
  readOlder(): Promise<void>;
}

export function useActivity(name: string): Doings {
  const [read, setRead] = useState<readonly Activity[]>([]);
  const [whole, setWhole] = useState(false);
  const live = hub.link.value === "live" && mayWatch(name);
  const page = async (to: number | null) =>
    (await hub.ask("read_activity", { member: name, to_ms: to, limit: PAGE })).rows;
  useEffect(() => {
    if (!live) return;
    void (async () => {
      // Followed first, so that nothing falls between the two.
      await follow(name);
      const rows = await page(null);
      const last = rows.at(-1);
      // A page is short at the end of what the hub has, and if its events are large.
      const older = last && rows.length < PAGE ? await page(last.ts_ms) : [];
      const all = [...rows, ...unknown(rows, older)];
      setRead(all);
      setWhole(rows.length < PAGE && all.length === rows.length);
    })().catch(() => undefined);
  }, [name, live, permissions.value]);
  const known = new Map([...read, ...came.value.filter((row) => row.member === name)].map((row) => [row.offset, row]));
  const rows = [...known.values()].toSorted((one, other) => other.ts_ms - one.ts_ms || other.offset - one.offset);
  const readOlder = async () => {
    const oldest = read.at(-1);
    if (!oldest || whole || rows.length >= KEPT_MAX) return;
    const older = unknown(read, await page(oldest.ts_ms));
    setRead([...read, ...older]);
    setWhole(older.length === 0);
  };
  return { rows, whole: !mayWatch(name) || whole, readOlder };
}
