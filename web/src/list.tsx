// A long list that draws only the visible rows. Rows may have any height; each is measured when it is drawn.
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";

interface Props<Row> {
  rows: readonly Row[];
  keyOf(row: Row): string;
  draw(row: Row, index: number): ComponentChildren;
  /** Height of a row until it was measured. */
  guess: number;
  label: string;
  /** Called when the first row comes into sight. */
  reachedTop?: () => void;
  /** Called with whether the last row is in sight, whenever that may have changed. */
  ended?: (atEnd: boolean) => void;
  /** Goes to this row, once: when it changes, or as soon as the row is there. */
  goTo?: string | undefined;
}

const BEYOND = 6;
const FORGOTTEN = 1000;
const NEAR = 24;

export function LongList<Row>({ rows, keyOf, draw, guess, label, reachedTop, ended, goTo }: Props<Row>) {
  const box = useRef<HTMLDivElement>(null);
  const heights = useRef(new Map<string, number>());
  const atEnd = useRef(true);
  const anchor = useRef<{ key: string; top: number } | null>(null);
  // Number of rows that had another height than expected.
  const measured = useRef(0);
  const [, redraw] = useState(0);
  const again = () => redraw((count) => count + 1);

  const tops = useMemo(() => {
    // Forget the heights of rows that are gone.
    if (heights.current.size > rows.length + FORGOTTEN) {
      const here = new Set(rows.map(keyOf));
      for (const key of heights.current.keys()) if (!here.has(key)) heights.current.delete(key);
    }
    const found = new Float64Array(rows.length + 1);
    rows.forEach((row, index) => {
      found[index + 1] = (found[index] ?? 0) + (heights.current.get(keyOf(row)) ?? guess);
    });
    return found;
  }, [rows, measured.current]);
  const total = tops[rows.length] ?? 0;
  const scroll = box.current?.scrollTop ?? total;
  const view = box.current?.clientHeight ?? 800;
  const first = Math.max(0, indexAt(tops, atEnd.current ? total - view : scroll) - BEYOND);
  const last = Math.min(rows.length, indexAt(tops, (atEnd.current ? total : scroll + view) + 1) + BEYOND);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    let moved = false;
    for (const child of element.querySelectorAll<HTMLElement>("[data-key]")) {
      const key = child.dataset["key"] ?? "";
      const height = child.offsetHeight;
      if (height && heights.current.get(key) !== height) {
        heights.current.set(key, height);
        moved = true;
      }
    }
    if (atEnd.current) element.scrollTop = element.scrollHeight;
    else if (anchor.current) {
      // New rows before the visible row must not move it.
      const index = rows.findIndex((row) => keyOf(row) === anchor.current?.key);
      const top = (tops[index] ?? 0) + anchor.current.top;
      if (index >= 0 && Math.abs(element.scrollTop - top) > 1) element.scrollTop = top;
    }
    ended?.(nearEnd(element));
    if (moved) {
      measured.current += 1;
      again();
    }
  });

  const went = useRef<string | undefined>(undefined);
  if (went.current !== goTo) went.current = undefined;
  const index = goTo && went.current === undefined ? rows.findIndex((row) => keyOf(row) === goTo) : -1;
  useEffect(() => {
    if (index < 0 || !box.current) return;
    went.current = goTo;
    atEnd.current = false;
    anchor.current = { key: goTo ?? "", top: -view / 3 };
    box.current.scrollTop = (tops[index] ?? 0) - view / 3;
    ended?.(nearEnd(box.current));
    again();
  }, [goTo, index >= 0]);

  const scrolled = () => {
    const element = box.current;
    if (!element) return;
    atEnd.current = nearEnd(element);
    const top = indexAt(tops, element.scrollTop);
    const row = rows[top];
    anchor.current = row ? { key: keyOf(row), top: element.scrollTop - (tops[top] ?? 0) } : null;
    if (element.scrollTop < view) reachedTop?.();
    again();
  };

  return (
    <div class="list" ref={box} onScroll={scrolled} role="log" aria-label={label} aria-live="off" tabIndex={0}>
      <div class="above" ref={(element) => void element?.style.setProperty("height", `${tops[first] ?? 0}px`)} />
      {rows.slice(first, last).map((row, offset) => (
        <div key={keyOf(row)} data-key={keyOf(row)}>
          {draw(row, first + offset)}
        </div>
      ))}
      <div ref={(element) => void element?.style.setProperty("height", `${total - (tops[last] ?? total)}px`)} />
    </div>
  );
}

/** True if the end of a box can be seen. */
const nearEnd = ({ scrollHeight, scrollTop, clientHeight }: Element): boolean =>
  scrollHeight - scrollTop - clientHeight < NEAR;

/** The row at a height. */
function indexAt(tops: Float64Array, height: number): number {
  let low = 0;
  let high = tops.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((tops[middle] ?? 0) <= height) low = middle;
    else high = middle - 1;
  }
  return low;
}
