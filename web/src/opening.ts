// The way to a row of a conversation: it opens at the first unseen message, or at the one that the address names.
import { useEffect, useState } from "preact/hooks";
import type { Backlog } from "./backlog.ts";
import type { Message } from "./hub.ts";
import { isRead, unseenAt } from "./inbox.ts";
import type { Jump } from "./list.tsx";
import { where } from "./route.ts";
import { isLookedAt } from "./seen.ts";
import { KEPT_MAX, hub } from "./state.ts";
import type { Place } from "./talk.ts";

/** With more unseen messages than this, a conversation opens at its end: nobody reads all of them first. */
const OPENING_MAX = 1000;

interface Opening {
  /** Offset of the first message below the line that says what is new; null without such a line. */
  line: number | null;
  /** The row that the list goes to. */
  jump: Jump | undefined;
  /** Go to the first message from this offset on; it may have to be read first. */
  go(offset: number): void;
}

export function useOpening(place: Place, backlog: Backlog): Opening {
  const rows = backlog.rows.value;
  const [line, setLine] = useState<number | null>(null);
  const [wanted, setWanted] = useState<number | null>(null);
  const [jump, setJump] = useState<Jump | undefined>();
  const { message: named, at } = where.value;

  const looks = isLookedAt();
  useEffect(() => {
    // Whenever somebody begins to look, the line is above what came since.
    const [first = null] = unseenAt(place);
    setLine(first);
  }, [isRead.value, looks]);
  useEffect(() => {
    const unseen = unseenAt(place);
    const [first = null] = unseen;
    if (isRead.value && !named && unseen.size <= OPENING_MAX) setWanted(first);
  }, [isRead.value]);
  useEffect(() => {
    if (named && at !== null) setWanted(at);
    else if (named) setJump({ key: named });
  }, [named, at]);
  const way = wanted === null ? null : wayTo(wanted, rows, backlog.isWhole.value || rows.length >= KEPT_MAX);
  useEffect(() => {
    if (way === "read") void backlog.readBack();
    else if (way) {
      setJump(way);
      setWanted(null);
    }
  }, [typeof way === "string" ? way : way?.key, rows[0]?.offset, hub.link.value]);
  return { line, jump, go: setWanted };
}

/** The way to the first message from an offset on: a row, or older rows that must be read before. */
export function wayTo(wanted: number, rows: readonly Message[], isWhole: boolean): Jump | "read" | null {
  const [oldest] = rows;
  if (!isWhole && (!oldest || oldest.offset > wanted)) return "read";
  const row = rows.find((message) => message.offset >= wanted) ?? rows.at(-1);
  return row ? { key: row.id } : null;
}
