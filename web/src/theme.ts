// Light or dark: as the system says, or as the person chose in this browser.
import { computed, effect, signal } from "@preact/signals";

export const THEMES = ["system", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];

const KEY = "theme";

function kept(): Theme {
  try {
    return THEMES.find((one) => one === localStorage.getItem(KEY)) ?? "system";
  } catch {
    // A browser may forbid a page to keep anything; a report that is opened as a file has colours then, too.
    return "system";
  }
}

export const theme = signal<Theme>(kept());

const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = signal(system.matches);
system.addEventListener("change", () => {
  isDark.value = system.matches;
});

/** The colours of the page now. */
export const scheme = computed(() => (theme.value === "system" ? (isDark.value ? "dark" : "light") : theme.value));

effect(() => {
  document.documentElement.dataset["theme"] = scheme.value;
});
// The person chose in another tab.
addEventListener("storage", (event) => {
  if (event.key === KEY) theme.value = kept();
});

export function choose(chosen: Theme): void {
  localStorage.setItem(KEY, chosen);
  theme.value = chosen;
}
