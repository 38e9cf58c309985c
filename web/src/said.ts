// Messages of one member: those that it sent, was sent, or are about its objectives, back to the first one.
import { useEffect, useState } from "preact/hooks";
import type { Message } from "./hub.ts";
import { hub, messages, permissions, readOlder, seesAll, settle, whole } from "./state.ts";

const PAGE = 100;
/** Pages of everything that are read at once, to find the messages of a member among them. */
const PAGES_MAX = 5;

export interface Said {
  /** Messages of the member, and others, in the order of the log. */
  rows: readonly Message[];
  /** True if the hub has nothing older. */
  whole: boolean;
  readOlder(): Promise<void>;
}

/** Return messages that were read, with those that came later. */
export function joined(read: readonly Message[], live: readonly Message[]): readonly Message[] {
  const last = read.at(-1)?.offset ?? -1;
  return [...read, ...live.filter(({ offset }) => offset > last)];
}

/** Messages of a member, for those who may read everything: the hub finds them. */
function useFound(name: string): Said {
  const [read, setRead] = useState<readonly Message[]>([]);
  const [all, setAll] = useState(false);
  const live = hub.link.value === "live" && seesAll.value;
  /** Read at least a page before what is known, or all there is: a page is also short if its messages are large. */
  const readBefore = async (known: readonly Message[]) => {
    const found: Message[] = [];
    while (found.length < PAGE) {
      const first = found.at(-1) ?? known[0];
      const range = first ? { before: first.offset } : {};
      const page = await hub.ask("read_history", { member: name, everything: true, limit: PAGE, ...range });
      found.push(...page.messages);
      if (!page.messages.length) {
        setAll(true);
        break;
      }
    }
    setRead([...found.toReversed(), ...known]);
  };
  useEffect(() => {
    if (!live) return;
    setAll(false);
    void readBefore([]).catch(() => undefined);
  }, [name, live, permissions.value]);
  const older = async () => {
    if (!all) await readBefore(read);
  };
  return { rows: joined(read, messages.value), whole: all, readOlder: older };
}

/** Messages of a member among those that the viewer may see. */
function useSeen(): Said {
  // Messages that were read back need no room once the page is left.
  useEffect(() => settle, []);
  const older = async () => {
    for (let count = 0; count < PAGES_MAX && !whole.value; count++) await readOlder();
  };
  const live = hub.link.value === "live" && !seesAll.value;
  useEffect(() => {
    // The page may have the last minutes only.
    if (live) void older().catch(() => undefined);
  }, [live]);
  return { rows: messages.value, whole: whole.value, readOlder: older };
}

export function useSaid(name: string): Said {
  const [found, seen] = [useFound(name), useSeen()];
  return seesAll.value ? found : seen;
}
