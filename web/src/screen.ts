// The part of the screen that the page has: a phone's keyboard covers the rest. And the number beside the page's title.
import { effect } from "@preact/signals";
import { unread } from "./places.tsx";
import { visitor } from "./state.ts";
import { blockedOnMe } from "./waits.ts";

/** Fit the page into the part of the screen that is left to it. */
function fit(view: VisualViewport): void {
  // A person who enlarges the page sees less of it, too, but then the page stays as it is.
  if (view.scale !== 1) return;
  document.documentElement.style.setProperty("--view", `${view.height}px`);
  scrollTo(0, 0);
}

function count(): void {
  const found = visitor.value ? unread.value + blockedOnMe.value.size : 0;
  document.title = found ? `(${found}) Tieline` : "Tieline";
  // The icon of the installed page, where there is one.
  void navigator.setAppBadge?.(found).catch(() => undefined);
}

export function followScreen(): void {
  const view = visualViewport;
  view?.addEventListener("resize", () => fit(view));
  effect(count);
}
