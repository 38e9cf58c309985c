// The pages of the console by their names in addresses, in the order in which they are listed.
import { computed } from "@preact/signals";
import { seesAll } from "./state.ts";

interface Page {
  name: string;
  title: string;
  /** Letter that opens it after `g`. */
  letter: string;
  /** True if it has a tab of its own on a phone. The others are behind "More". */
  tab: boolean;
}

const page = (name: string, title: string, letter: string, tab = false): Page => ({ name, title, letter, tab });

export const PAGES: readonly Page[] = [
  page("home", "Home", "h", true),
  page("live", "Live", "l"),
  page("talk", "Conversations", "c", true),
  page("members", "Members", "m", true),
  page("objectives", "Objectives", "o", true),
  page("search", "Search", "s"),
  page("insights", "Insights", "i"),
];

/** Pages that the viewer may open. */
export const pages = computed(() => PAGES.filter(({ name }) => name !== "insights" || seesAll.value));
