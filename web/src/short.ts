// Short ids, as the command line prints and takes them: the end of an objective's id, and the beginning of a thread's.

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const OF_THE_HUB = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** The first characters of an id; of the hub's own ids, which begin with the time, the random end with the counter. */
export function shortId(text: string): string {
  if (!UUID.test(text)) return text;
  if (!OF_THE_HUB.test(text)) return text.slice(0, 8);
  const mixed = parseInt(text.slice(28), 16) ^ (parseInt(text.slice(15, 18), 16) << 20);
  return (mixed >>> 0).toString(16).padStart(8, "0");
}

/** A target or a conversation, with a short id if it is an objective or a thread. */
export function shortPlace(place: string): string {
  const [, mark = "", id = ""] = /^(obj:|thread:)(.*)$/s.exec(place) ?? [];
  if (mark === "thread:") return mark + shortId(id);
  // An id of another program is kept.
  return mark ? mark + (/^obj-[^-]*-([^-]*)$/.exec(id)?.[1] ?? id) : place;
}
