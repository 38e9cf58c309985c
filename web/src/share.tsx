// Ways to take along what one looks at: its address, the same as a command or a request, and a conversation as a file.
import { useEffect, useRef } from "preact/hooks";
import { type Asks, asCommand, asCurl, asksOf } from "./asks.ts";
import { everythingAt } from "./backlog.ts";
import { type Exported, asJson, asMarkdown, fileName } from "./exported.ts";
import { where } from "./route.ts";
import { attempt, seesAll, tell } from "./state.ts";
import type { Place } from "./talk.ts";

export async function copy(text: string): Promise<void> {
  // A browser has a clipboard for a page only over https, or on the hub's own machine.
  if (navigator.clipboard as Clipboard | undefined) await attempt(() => navigator.clipboard.writeText(text), "Copied.");
  else tell(copyChosen(text) ? "Copied." : `The browser does not let this page copy. Here it is: ${text}`);
}

/** Copy a text as a person would: choose it on the page, and copy what is chosen. */
function copyChosen(text: string): boolean {
  const there = document.activeElement;
  const box = document.createElement("textarea");
  box.value = text;
  box.className = "sr";
  document.body.append(box);
  box.select();
  const copied = document.execCommand("copy");
  box.remove();
  if (there instanceof HTMLElement) there.focus();
  return copied;
}

interface Props {
  /** Command and request that are copied; by default, those that show the same as this page. */
  asks?: Asks | null;
  /** The conversation that is exported. */
  place?: Place;
}

export function Share({ asks = asksOf(where.value, seesAll.value, Date.now()), place }: Props) {
  const box = useRef<HTMLDetailsElement>(null);
  // A touch beside it closes it: not every browser gives the focus to what is touched.
  useEffect(() => {
    const touched = ({ target }: Event) => closeBut(box.current, target);
    addEventListener("pointerdown", touched);
    return () => removeEventListener("pointerdown", touched);
  }, []);
  const close = () => {
    if (!box.current?.open) return;
    box.current.open = false;
    box.current.querySelector("summary")?.focus();
  };
  const item = (name: string, act: () => unknown) => (
    <button
      type="button"
      onClick={() => {
        close();
        void act();
      }}
    >
      {name}
    </button>
  );
  return (
    <details
      class="menu"
      ref={box}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !box.current?.open) return;
        event.stopPropagation();
        close();
      }}
      onFocusOut={({ relatedTarget }) => closeBut(box.current, relatedTarget)}
    >
      <summary>Share</summary>
      <div role="group" aria-label="Share">
        {item("Copy link", () => copy(location.href))}
        {asks && item("Copy as tieline command", () => copy(asCommand(asks)))}
        {asks && item("Copy as curl", () => copy(asCurl(location.origin, asks)))}
        {place && item("Export as Markdown", () => save(place, asMarkdown, "md", "text/markdown"))}
        {place && item("Export as JSON", () => save(place, asJson, "json", "application/json"))}
      </div>
    </details>
  );
}

/** Close a menu if something outside of it was touched or got the focus. */
function closeBut(box: HTMLDetailsElement | null, target: EventTarget | null): void {
  if (box && target instanceof Node && !box.contains(target)) box.open = false;
}

/** Save a conversation as a file: everything of it, and not only what was loaded. */
const save = (place: Place, form: (exported: Exported) => string, ending: string, type: string) =>
  attempt(async () => {
    tell("Reading the conversation…");
    const found = await everythingAt(place);
    const blob = new Blob([form({ place, ...found, at_ms: Date.now() })], { type });
    const link = Object.assign(document.createElement("a"), {
      href: URL.createObjectURL(blob),
      download: `${fileName(place)}.${ending}`,
    });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }, "Saved.");
