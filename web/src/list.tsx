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
  /** Called with the rows that are in view, and with whether the last one is, whenever that may have changed. */
  inView?: (rows: readonly Row[], atEnd: boolean, box: Element) => void;
  /** Goes to this row, once for each jump: at once, or as soon as the row is there. */
  goTo?: Jump | undefined;
}

/** A way to a row. The same way is not gone twice, so a new object leads to the same row again. */
export interface Jump {
  readonly key: string;
}

const BEYOND = 6;
const FORGOTTEN = 1000;
const NEAR = 24;

export function LongList<Row>({ rows, keyOf, draw, guess, label, reachedTop, inView, goTo }: Props<Row>) {
  const box = useRef<HTMLDivElement>(null);
  const heights = useRef(new Map<string, number>());
  const atEnd = useRef(true);
  const anchor = useRef<{ key: string; top: number } | null>(null);
  /** Position that is known here; another one means that somebody scrolled. */
  const known = useRef(0);
  /** Number of drawings in which rows had another height than expected. */
  const [measured, setMeasured] = useState(0);
  const [, redraw] = useState(0);
  const again = () => redraw((count) => count + 1);

  const tops = useMemo(() => {
    const found = new Float64Array(rows.length + 1);
    rows.forEach((row, index) => {
      found[index + 1] = (found[index] ?? 0) + (heights.current.get(keyOf(row)) ?? guess);
    });
    return found;
  }, [rows, measured]);
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
    // The event of a scrolling may come after this drawing, which must not take it back.
    if (isScrolled(element, known.current)) note(element);
    if (atEnd.current) element.scrollTop = element.scrollHeight;
    else if (anchor.current) {
      // New rows before the visible row must not move it.
      const index = rows.findIndex((row) => keyOf(row) === anchor.current?.key);
      const top = (tops[index] ?? 0) + anchor.current.top;
      if (index >= 0 && Math.abs(element.scrollTop - top) > 1) element.scrollTop = top;
    }
    known.current = element.scrollTop;
    if (moved) setMeasured((count) => count + 1);
    else {
      atEnd.current = nearEnd(element);
      report(element);
    }
    // Forget the heights of rows that are gone.
    if (heights.current.size > rows.length + FORGOTTEN) {
      const here = new Set(rows.map(keyOf));
      for (const key of heights.current.keys()) if (!here.has(key)) heights.current.delete(key);
    }
  });

  const report = (element: Element) => {
    if (!inView) return;
    const [from, to] = rowsInView(tops, element.scrollTop, element.clientHeight);
    inView(rows.slice(from, to), nearEnd(element), element);
  };

  const [went, setWent] = useState<Jump | undefined>(undefined);
  const index = goTo && went !== goTo ? rows.findIndex((row) => keyOf(row) === goTo.key) : -1;
  useEffect(() => {
    if (index < 0 || !box.current || !goTo) return;
    const above = box.current.clientHeight / 4;
    atEnd.current = false;
    anchor.current = { key: goTo.key, top: -above };
    box.current.scrollTop = (tops[index] ?? 0) - above;
    known.current = box.current.scrollTop;
    setWent(goTo);
  }, [goTo, index >= 0]);

  const note = (element: Element) => {
    known.current = element.scrollTop;
    atEnd.current = nearEnd(element);
    const top = indexAt(tops, element.scrollTop);
    const row = rows[top];
    anchor.current = row ? { key: keyOf(row), top: element.scrollTop - (tops[top] ?? 0) } : null;
  };
  const scrolled = () => {
    const element = box.current;
    if (!element) return;
    note(element);
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

/** True if a box was scrolled away from a position. A browser itself moves it up to its end, when its content shrinks. */
const isScrolled = ({ scrollHeight, scrollTop, clientHeight }: Element, from: number): boolean =>
  scrollTop > from + 1 || (scrollTop < from - 1 && scrollHeight - scrollTop - clientHeight > 1);

/** The range of rows that are in view: whole, or, if a row is higher than the view, with a good part of it. */
export function rowsInView(tops: Float64Array, scroll: number, view: number): [from: number, to: number] {
  const isIn = (row: number): boolean => {
    const [top, end] = [tops[row] ?? 0, tops[row + 1] ?? 0];
    const part = Math.min(end, scroll + view) - Math.max(top, scroll);
    return end > top && part >= Math.min(end - top, view / 2) - 1;
  };
  let from = indexAt(tops, scroll);
  const last = Math.min(indexAt(tops, scroll + view) + 1, tops.length - 1);
  while (from < last && !isIn(from)) from++;
  let to = from;
  while (to < last && isIn(to)) to++;
  return [from, to];
}

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
