// The console: the frame around its pages, and the way in.
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { signal } from "@preact/signals";
import { Places, Talk, unread } from "./conversations.tsx";
import { OneDevice } from "./devices.tsx";
import { Entry } from "./entry.tsx";
import { Guard } from "./guard.tsx";
import { Home } from "./home.tsx";
import { Insights } from "./insights.tsx";
import { Live } from "./live.tsx";
import { Members } from "./members.tsx";
import { Aside } from "./message.tsx";
import { Objectives } from "./objectives.tsx";
import { Palette, openPalette } from "./palette.tsx";
import { Pauses } from "./pause.tsx";
import { address, where } from "./route.ts";
import { Search } from "./search.tsx";
import { attempt, hub, leave, look, notice, objectives, seesAll, tell, visitor } from "./state.ts";

/** The page of one device has no entry in the list of pages: a link leads to it. */
const DEVICE = "devices";
const PAGES = [
  ["home", "Home", Home],
  ["live", "Live", Live],
  ["talk", "Conversations", Talk],
  ["members", "Members", Members],
  ["objectives", "Objectives", Objectives],
  ["search", "Search", Search],
  ["insights", "Insights", Insights],
] as const;

function Console() {
  const { page } = where.value;
  const Page = page === DEVICE ? OneDevice : (PAGES.find(([name]) => name === page)?.[2] ?? Home);
  const blocked = objectives.value.filter((one) => one.status === "blocked").length;
  const counts: Record<string, [number, string]> = { talk: [unread.value, "unread"], objectives: [blocked, "blocked"] };
  return (
    <div class={`console${where.value.message ? " beside" : ""}`}>
      {/* No link: the text after the `#` is the address of the page. */}
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        Skip to the page
      </button>
      <nav class="side" aria-label="Pages">
        <p class="brand">Tieline</p>
        <ul>
          {PAGES.filter(([name]) => name !== "insights" || seesAll.value).map(([name, title]) => {
            const [count, word] = counts[name] ?? [0, ""];
            return (
              <li key={name}>
                <a href={address(name)} aria-current={page === name ? "page" : undefined}>
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
        <Places />
        <div class="foot">
          <button type="button" class="quiet" onClick={openPalette}>
            Go to… <kbd>Ctrl K</kbd>
          </button>
          <p>
            <a href="/docs/">Docs</a>
          </p>
          <Link />
          <p>
            {visitor.value?.member}{" "}
            <button type="button" class="quiet" onClick={() => void attempt(leave)}>
              Sign out
            </button>
          </p>
        </div>
      </nav>
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
      <p class={notice.value ? "toast" : "toast away"} role="status">
        {notice.value}
      </p>
    </div>
  );
}

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

void arrive();
