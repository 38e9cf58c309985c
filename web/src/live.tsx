// The live tail: everything that the viewer may see, as it happens.
import { batch, computed, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import type { Message } from "./hub.ts";
import { LongList } from "./list.tsx";
import { Day, LiveRow } from "./message.tsx";
import { where } from "./route.ts";
import { Select, same } from "./select.tsx";
import { Share } from "./share.tsx";
import {
  attempt,
  isFull,
  messages,
  permissions,
  protocols,
  readBefore,
  readOlder,
  seesAll,
  settle,
  whole,
} from "./state.ts";

const words = signal("");
const protocol = signal("");
const level = signal("");
/** The messages that are shown while the tail is paused. */
const held = signal<readonly Message[] | null>(null);
/** True if the log has nothing before them. */
const heldWhole = signal(false);
permissions.subscribe(() => {
  // A paused tail must not show messages that the viewer may not see any more.
  held.value = null;
});

function hold(): void {
  batch(() => {
    held.value = held.value ? null : messages.value;
    heldWhole.value = whole.value;
  });
}

/** Read what was said before the first row; while the tail stands still, that is not what the page keeps before its own. */
async function readBack(): Promise<void> {
  const still = held.value;
  const first = still?.[0];
  if (!still || !first) {
    if (!whole.value) await readOlder();
    return;
  }
  if (heldWhole.value || isFull(still)) return;
  const page = await readBefore(first);
  if (held.value !== still) return;
  batch(() => {
    heldWhole.value = page.length === 0;
    held.value = [...page, ...still];
  });
}

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical"];

/** A function that is true for a message with the searched words. It looks through each message once. */
const wanted = computed(() => {
  const asked = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  if (!asked.length) return null;
  const known = new WeakMap<Message, boolean>();
  return (message: Message): boolean => {
    let found = known.get(message);
    if (found === undefined) {
      const text =
        `${message.from} ${message.target} ${message.title ?? ""} ${message.body} ${message.thread ?? ""}`.toLowerCase();
      found = asked.every((word) => text.includes(word));
      known.set(message, found);
    }
    return found;
  };
});

const matching = computed(() => {
  const least = LEVELS.indexOf(level.value);
  const all = held.value ?? messages.value;
  if (!wanted.value && !protocol.value && least < 0) return all;
  return all.filter((message) => {
    if (protocol.value && message.protocol !== protocol.value) return false;
    if (least > LEVELS.indexOf(message.level ?? "info")) return false;
    return wanted.value?.(message) ?? true;
  });
});

export function Live() {
  const shown = matching.value;
  useEffect(() => settle, []);
  const chosen = where.value.message;
  const jump = useMemo(() => (chosen ? { key: chosen } : undefined), [chosen]);
  const last = held.value?.at(-1)?.offset ?? -1;
  const behind = held.value
    ? messages.value.length - 1 - messages.value.findLastIndex((message) => message.offset <= last)
    : 0;
  return (
    <section class="page live">
      <header class="bar">
        <h1>Live</h1>
        <input
          type="search"
          placeholder="Filter"
          title="By member, channel, thread or text"
          aria-label="Filter"
          value={words.value}
          onInput={(event) => {
            words.value = event.currentTarget.value;
          }}
        />
        <Select
          label="Protocol"
          value={protocol.value}
          choose={(name) => {
            protocol.value = name;
          }}
          options={[["", "any protocol"], ...same(protocols.value)]}
        />
        <Select
          label="Level"
          value={level.value}
          choose={(name) => {
            level.value = name;
          }}
          options={[["", "any level"], ...LEVELS.map((name) => [name, `${name} and above`] as const)]}
        />
        <button type="button" aria-pressed={held.value !== null} onClick={hold}>
          {held.value ? `Resume${behind > 0 ? ` (${behind} new)` : ""}` : "Pause"}
        </button>
        <span class="count">
          {shown.length.toLocaleString()} messages{seesAll.value ? "" : " that you may see"}
        </span>
        <Share />
      </header>
      {shown.length === 0 ? (
        <div class="empty">{messages.value.length ? <p>Nothing matches this filter.</p> : <FirstMessage />}</div>
      ) : (
        <LongList
          rows={shown}
          keyOf={(message) => message.id}
          guess={30}
          label="Messages as they are said"
          goTo={jump}
          reachedTop={() => void attempt(readBack)}
          draw={(message, index) => (
            <>
              <Day before={shown[index - 1]} message={message} />
              <LiveRow message={message} chosen={message.id === chosen} />
            </>
          )}
        />
      )}
    </section>
  );
}

const FirstMessage = () => (
  <>
    <p>Nothing was said yet. To see something here, in a terminal:</p>
    <pre>
      tieline member add alice --kind human{"\n"}tieline member add bob{"\n"}tieline send @bob hello --as alice
    </pre>
  </>
);
