// The box to write in.
import { useLayoutEffect, useRef } from "preact/hooks";
import { useDraft, useNames } from "./draft.ts";
import type { Message } from "./hub.ts";
import { oneLine, plain } from "./plain.ts";
import { nameOf } from "./talk.ts";

interface Props {
  target: string;
  thread: string | null;
  reply: Message | null;
  /** Called when it was sent, and when it is no reply any more. */
  done(): void;
}

export function Compose({ target, thread, reply, done }: Props) {
  const box = useRef<HTMLTextAreaElement>(null);
  const draft = useDraft({ target, thread, reply, done });
  const names = useNames(draft.text, draft.setText);
  useLayoutEffect(() => {
    if (reply) box.current?.focus();
  }, [reply]);
  const complete = (name: string) => {
    names.complete(name);
    box.current?.focus();
  };

  const pressed = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    const { chosen } = names;
    if (chosen && !event.shiftKey && (event.key === "Tab" || event.key === "Enter")) {
      event.preventDefault();
      complete(chosen);
    } else if (chosen && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      names.move(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      void draft.send();
    } else if (event.key === "Escape" && reply) {
      done();
    }
  };
  const words = `Say something to ${plain(nameOf(target))}`;

  return (
    <form
      class="compose"
      onSubmit={(event) => {
        event.preventDefault();
        void draft.send();
      }}
    >
      {reply && (
        <p class="quoted">
          ↪ {plain(reply.from)}: {oneLine(reply.body, 120)}{" "}
          <button type="button" class="quiet" onClick={done}>
            Not a reply
          </button>
        </p>
      )}
      {names.near.length > 0 && (
        <ul class="near" role="listbox" aria-label="Names">
          {names.near.map((name) => (
            <li key={name} role="option" aria-selected={name === names.chosen} onMouseDown={() => complete(name)}>
              {plain(name)}
            </li>
          ))}
        </ul>
      )}
      <textarea
        ref={box}
        rows={2}
        value={draft.text}
        aria-label={words}
        placeholder={words}
        title="Enter sends, Shift+Enter is a new line"
        onInput={(event) => draft.setText(event.currentTarget.value)}
        onKeyDown={pressed}
      />
      {draft.files.length > 0 && (
        <p class="line">
          {draft.files.map((file) => (
            <span class="mark" key={file.path}>
              {plain(file.name ?? file.path)}
            </span>
          ))}
          <button type="button" class="quiet" onClick={draft.detach}>
            Without files
          </button>
        </p>
      )}
      <label class="attach">
        Attach
        <input
          type="file"
          multiple
          class="sr"
          onChange={(event) => {
            const picked = [...(event.currentTarget.files ?? [])];
            event.currentTarget.value = "";
            void draft.attach(picked);
          }}
        />
      </label>
      <label>
        <input
          type="checkbox"
          checked={draft.urgent}
          onChange={(event) => draft.setUrgent(event.currentTarget.checked)}
        />{" "}
        Urgent
      </label>
      <button type="submit" class="main" disabled={!draft.text.trim()}>
        Send
      </button>
    </form>
  );
}
