// Things to choose from that fit what a person types, the best first.

export interface Named {
  text: string;
  /** A word for its kind. */
  hint: string;
}

/** Return how well a choice fits a word: its text begins so, a word of it does, it has it, its hint has it; null if none. */
function fitOf({ text, hint }: Named, word: string): number | null {
  const name = text.toLowerCase();
  const at = name.indexOf(word);
  if (at < 0) return hint.includes(word) ? 3 : null;
  if (name.replace(/^[#@]/, "").startsWith(word) || at === 0) return 0;
  return name.split(/[\s._-]+/).some((part) => part.startsWith(word)) ? 1 : 2;
}

/** Return the choices that fit every word, the best first. */
export function fitting<One extends Named>(all: readonly One[], asked: string): readonly One[] {
  const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.flatMap((one) => {
    const fits = words.map((word) => fitOf(one, word));
    return fits.includes(null) ? [] : [{ one, fit: fits.reduce((sum: number, fit) => sum + (fit ?? 0), 0) }];
  });
  return found.toSorted((one, other) => one.fit - other.fit).map(({ one }) => one);
}
