// The console: the frame around its pages, and the way in.
import { type ComponentType, render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { signal } from "@preact/signals";
import { Talk } from "./conversations.tsx";
import { OneDevice } from "./devices.tsx";
import { Entry } from "./entry.tsx";
import { Guard } from "./guard.tsx";
import { Home } from "./home.tsx";
import { Icon } from "./icons.tsx";
import { Insights } from "./insights.tsx";
import { Keys, openKeys } from "./keys.tsx";
import { Live } from "./live.tsx";
import { Members } from "./members.tsx";
import { Aside } from "./message.tsx";
import { Objectives } from "./objectives.tsx";
import { PAGES, pages } from "./pages.ts";
import { Palette, openPalette } from "./palette.tsx";
import { Pauses } from "./pause.tsx";
import { Places, unread } from "./places.tsx";
import { plain } from "./plain.ts";
import { address, where } from "./route.ts";
import { followScreen } from "./screen.ts";
import { Search } from "./search.tsx";
import { attempt, hub, leave, look, notice, objectives, tell, visitor } from "./state.ts";
import { THEMES, choose, theme } from "./theme.ts";

/** The page of one device has no entry in the list of pages: a link leads to it. */
const DEVICE = "devices";
const DRAWN: ReadonlyMap<string, ComponentType> = new Map([
  ["home", Home],
  ["live", Live],
  ["talk", Talk],
  ["members", Members],
  ["objectives", Objectives],
  ["search", Search],
  ["insights", Insights],
  [DEVICE, OneDevice],
]);

function Pages({ of }: { of: typeof PAGES }) {
  const { page } = where.value;
  const blocked = objectives.value.filter((one) => one.status === "blocked").length;
  const counts: Record<string, [number, string]> = { talk: [unread.value, "unread"], objectives: [blocked, "blocked"] };
  return (
    <ul>
      {of.map(({ name, title, tab }) => {
        const [count, word] = counts[name] ?? [0, ""];
        return (
          <li key={name} class={tab ? "tab" : "rest"}>
            <a href={address(name)} aria-current={page === name ? "page" : undefined}>
              <Icon of={name} />
              <span class="name">{title}</span>
              {count > 0 && (
                <span class="badge">
                  {count}
                  <span class="sr"> {word}</span>
                </span>
              )}
            </a>
          </li>
        );
      })}
    </ul>
  );
}

/** True if the pages behind "More" are shown, on a phone. */
const more = signal(false);
const closeMore = () => {
  more.value = false;
};
addEventListener("hashchange", closeMore);
addEventListener("pointerdown", ({ target }) => {
  if (target instanceof Element && !target.closest(".side")) closeMore();
});

function Side() {
  const { page } = where.value;
  const button = useRef<HTMLButtonElement>(null);
  const others = pages.value.filter(({ tab }) => !tab);
  const open = (dialog: () => void) => {
    // The dialog gives the focus back to what has it now. On a phone, its button is gone then.
    if (more.value) button.current?.focus();
    closeMore();
    dialog();
  };
  return (
    <nav
      class={more.value ? "side open" : "side"}
      aria-label="Pages"
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !more.value) return;
        closeMore();
        button.current?.focus();
      }}
    >
      <p class="brand">Tieline</p>
      <Pages of={pages.value} />
      <button
        type="button"
        class={others.some(({ name }) => name === page) ? "more here" : "more"}
        aria-expanded={more.value}
        aria-controls="more"
        ref={button}
        onClick={() => {
          more.value = !more.value;
        }}
      >
        <Icon of="more" />
        More
      </button>
      <Places />
      <Link />
      <div class="foot" id="more">
        <div class="others">
          <Pages of={others} />
        </div>
        <p>
          <button type="button" class="quiet" onClick={() => open(openPalette)}>
            Go to… <kbd>Ctrl K</kbd>
          </button>
          <button type="button" class="quiet" onClick={() => open(openKeys)}>
            Keys <kbd>?</kbd>
          </button>
        </p>
        <p>
          <label>
            Theme{" "}
            <select
              value={theme.value}
              onChange={(event) => choose(THEMES.find((one) => one === event.currentTarget.value) ?? "system")}
            >
              {THEMES.map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </label>
          <a href="/docs/">Docs</a>
        </p>
        <p class="me">
          <span title={visitor.value?.member}>{plain(visitor.value?.member ?? "")}</span>{" "}
          <button type="button" class="quiet" onClick={() => void attempt(leave)}>
            Sign out
          </button>
        </p>
      </div>
    </nav>
  );
}

function Console() {
  const { page } = where.value;
  const Page = DRAWN.get(page) ?? Nowhere;
  return (
    <div class={`console${where.value.message ? " beside" : ""}`}>
      {/* No link: the text after the `#` is the address of the page. */}
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        Skip to the page
      </button>
      <Side />
      <main id="main" tabIndex={-1}>
        <Pauses />
        <Guard
          key={`${page} ${visitor.value?.permissions}`}
          instead="This page could not be drawn. Load it again; the browser's console has the reason."
        >
          <Page />
        </Guard>
      </main>
      <Aside />
      <Palette />
      <Keys />
      <p class={notice.value ? "toast" : "toast away"} role="status">
        {notice.value}
      </p>
    </div>
  );
}

const Nowhere = () => (
  <section class="page">
    <header class="bar">
      <h1>Nothing here</h1>
    </header>
    <div class="empty">
      <p>There is no page “{plain(where.value.page)}”.</p>
      <p>
        <a href={address("home")}>Go to the first page</a>
      </p>
    </div>
  </section>
);

const LINKS = { opening: "Connecting…", live: "Connected", lost: "Connection lost; trying again…", out: "Signed out" };

const Link = () => (
  <p class={`link ${hub.link.value}`} role="status">
    <span class="dot" aria-hidden="true" /> {LINKS[hub.link.value]}
  </p>
);

/** The reason why the viewer is not known yet. */
const trouble = signal("");
const RETRY_MS = 3000;

function App() {
  const shown = visitor.value && where.value.page === "enter" ? where.value.of : "";
  useEffect(() => {
    if (!shown) return;
    // A token does not stay in the address, where it would be part of every link.
    location.replace("#/home");
    tell("You are in already; the link was not used.");
  }, [shown]);
  if (visitor.value === undefined) {
    return (
      <main class="entry">
        <p role="status">{trouble.value ? `${trouble.value} Trying again…` : "…"}</p>
      </main>
    );
  }
  return visitor.value ? <Console /> : <Entry />;
}

const root = document.getElementById("root");
if (root) render(<App />, root);

async function arrive(): Promise<void> {
  try {
    await look();
  } catch {
    trouble.value = "The hub does not answer.";
    setTimeout(() => void arrive(), RETRY_MS);
  }
}

followScreen();
void arrive();
