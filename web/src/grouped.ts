// Items by a name that several of them have.

/** Return the items by their names, in the order in which the names come first. */
export function grouped<T>(items: readonly T[], nameOf: (item: T) => string): ReadonlyMap<string, readonly T[]> {
  const found = new Map<string, T[]>();
  for (const item of items) {
    const same = found.get(nameOf(item));
    if (same) same.push(item);
    else found.set(nameOf(item), [item]);
  }
  return found;
}
