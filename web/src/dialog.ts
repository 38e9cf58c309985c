// A dialog that stays in the page and is shown while a signal is true. Escape closes it, and the focus returns.
import type { Signal } from "@preact/signals";
import type { TargetedEvent } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

/** Return the properties of a dialog's element. */
export function useDialog(open: Signal<boolean>) {
  const box = useRef<HTMLDialogElement>(null);
  // Before the next painting, so that the dialog gets the keys that are typed right after those that open it.
  useLayoutEffect(() => {
    if (open.value) box.current?.showModal();
    else box.current?.close();
  }, [open.value]);
  return {
    ref: box,
    // Escape hides the dialog at once, but its close event comes later: a key may have opened it again by then.
    onCancel: () => {
      open.value = false;
    },
    onClose: ({ currentTarget }: TargetedEvent<HTMLDialogElement>) => {
      open.value = currentTarget.open;
    },
  };
}
