// An action that asks first: a button and a dialog. The keyboard works as in any dialog: Escape closes it, and the
// focus returns.
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { tell } from "./state.ts";

interface Props {
  /** Text of the button. */
  name: string;
  /** Text of the button in the dialog, which does the action. By default it is the same text. */
  submit?: string;
  title: string;
  /** Text of the button that closes the dialog. */
  dismiss?: string;
  danger?: boolean;
  main?: boolean;
  /** Fields of the form, by their names. */
  children: ComponentChildren;
  /** Do it; what it throws is shown in the dialog, which stays. */
  act(form: FormData): Promise<unknown>;
  done?: string;
}

export function Action(props: Props) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" class={kind(props)} aria-haspopup="dialog" onClick={() => setOpen(true)}>
        {props.name}
      </button>
      {open && <Question {...props} closed={() => setOpen(false)} />}
    </>
  );
}

const kind = ({ danger, main }: Props) => (danger ? "danger" : main ? "main" : "");

function Question(props: Props & { closed(): void }) {
  const { name, submit: word = name, dismiss = "Cancel", title, children, act, done, closed } = props;
  const box = useRef<HTMLDialogElement>(null);
  const [why, setWhy] = useState("");
  const [busy, setBusy] = useState(false);
  useLayoutEffect(() => {
    box.current?.showModal();
    // The action may have removed the button that opened the dialog.
    return () =>
      void setTimeout(() => document.activeElement === document.body && document.getElementById("main")?.focus());
  }, []);
  // A dialog is closed before it is removed, so that the focus returns. Its close event comes later: the button may have
  // opened the next dialog by then.
  const shut = () => {
    box.current?.close();
    closed();
  };
  const submit = async (form: FormData) => {
    setBusy(true);
    setWhy("");
    try {
      await act(form);
      shut();
      if (done) tell(done);
    } catch (error) {
      setWhy(error instanceof Error ? error.message : String(error));
    }
    setBusy(false);
  };
  return (
    <dialog
      ref={box}
      class="ask"
      aria-label={title}
      // A file field inside says "cancel" too, when nothing was chosen.
      onCancel={(event) => event.target === event.currentTarget && shut()}
      onClose={(event) => event.currentTarget.isConnected && closed()}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit(new FormData(event.currentTarget));
        }}
      >
        <h2>{title}</h2>
        {children}
        {why && (
          <p class="unseen" role="alert">
            {why}
          </p>
        )}
        <p class="line">
          <button type="submit" class={props.danger ? "danger" : "main"} disabled={busy}>
            {word}
          </button>
          <button type="button" onClick={shut}>
            {dismiss}
          </button>
        </p>
      </form>
    </dialog>
  );
}

/** Return the value of a form's field. */
export const text = (form: FormData, name: string): string => String(form.get(name) ?? "").trim();
