// The keyboard: `g` and a letter opens a page, and `?` shows all keys.
import { signal } from "@preact/signals";
import { useDialog } from "./dialog.ts";
import { PAGES, pages } from "./pages.ts";
import { go } from "./route.ts";

const KEYS: readonly (readonly [string, string])[] = [
  ["Ctrl K or /", "Go to a page, conversation, member or objective"],
  ...PAGES.map(({ letter, title }) => [`g ${letter}`, title] as const),
  ["Enter", "Send; in a list of names, take the chosen one"],
  ["Shift Enter", "A new line"],
  ["@ and #", "Complete a name while you write"],
  ["Escape", "Close what is open; not a reply after all"],
  ["?", "These keys"],
];
/** Time in which the letter follows `g`. */
const FOLLOWS_MS = 1500;

const open = signal(false);
export const openKeys = () => {
  open.value = true;
};
// Close the dialog if the person goes to another page in another way.
addEventListener("hashchange", () => {
  open.value = false;
});

/** True if a key is typed into something, so that it is no command. */
export const isTyped = ({ target }: KeyboardEvent): boolean =>
  target instanceof Element && target.closest("input, textarea, select, dialog") !== null;

let begunAt = -Infinity;

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyped(event)) return;
  const follows = event.timeStamp - begunAt < FOLLOWS_MS;
  const page = follows && pages.value.find(({ letter }) => letter === event.key);
  begunAt = event.key === "g" ? event.timeStamp : -Infinity;
  if (event.key === "?") open.value = true;
  else if (page) go(page.name);
});

export function Keys() {
  const dialog = useDialog(open);
  return (
    <dialog {...dialog} class="ask" aria-label="Keys">
      {open.value && (
        <>
          <h2>Keys</h2>
          <dl class="keys">
            {KEYS.map(([key, what]) => (
              <div key={key}>
                <dt>
                  <kbd>{key}</kbd>
                </dt>
                <dd>{what}</dd>
              </div>
            ))}
          </dl>
          <button
            type="button"
            class="main"
            onClick={() => {
              open.value = false;
            }}
          >
            Close
          </button>
        </>
      )}
    </dialog>
  );
}
