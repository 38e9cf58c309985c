// Runs one hook without a page, by Preact's own test utilities. A component that draws nothing touches no element.
import { h, render } from "preact";
import { act } from "preact/test-utils";

interface Used<Value> {
  /** Return the last value of the hook. */
  now(): Value;
  /** Do something with it, and run what follows from it. */
  act(work: (now: Value) => unknown): void;
  /** Wait for work that it began. */
  settle(work: Promise<unknown>): Promise<void>;
}

/** Use a hook. It is used again whenever its state changes, and after each `act`. */
export function used<Value>(hook: () => Value): Used<Value> {
  let value!: Value;
  // Another property each time, because the same ones would not be drawn again.
  function Nothing({ drawn: _drawn }: { drawn: number }) {
    value = hook();
    return null;
  }
  let drawn = 0;
  const nowhere = { childNodes: [], firstChild: null, insertBefore: () => null } as unknown as Element;
  const draw = () => render(h(Nothing, { drawn: drawn++ }), nowhere);
  void act(draw);
  return {
    now: () => value,
    act: (work) =>
      void act(() => {
        work(value);
        draw();
      }),
    settle: async (work) => {
      await act(async () => void (await work));
    },
  };
}
