// The console: the frame around its pages, and the way in.
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { logIn } from "./ac7.ts";
import { Places, Talk, unread } from "./conversations.tsx";
import { Guard } from "./guard.tsx";
import { Insights } from "./insights.tsx";
import { Live } from "./live.tsx";
import { Members } from "./members.tsx";
import { Aside } from "./message.tsx";
import { Objectives } from "./objectives.tsx";
import { Palette, openPalette } from "./palette.tsx";
import { Pauses } from "./pause.tsx";
import { address, go, where } from "./route.ts";
import { Search } from "./search.tsx";
import { enter, hub, leave, look, notice, objectives, seesAll, visitor } from "./state.ts";

const PAGES = [
  ["live", "Live", Live],
  ["talk", "Conversations", Talk],
  ["members", "Members", Members],
  ["objectives", "Objectives", Objectives],
  ["search", "Search", Search],
  ["insights", "Insights", Insights],
] as const;

function Console() {
  const { page } = where.value;
  const Page = PAGES.find(([name]) => name === page)?.[2] ?? Live;
  const blocked = objectives.value.filter((one) => one.status === "blocked").length;
  const counts: Record<string, [number, string]> = { talk: [unread.value, "unread"], objectives: [blocked, "blocked"] };
  return (
    <div class={`console${where.value.message ? " beside" : ""}`}>
      {/* No link: what stands after the `#` is where one is. */}
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
          <Link />
          <p>
            {visitor.value?.member}{" "}
            <button type="button" class="quiet" onClick={() => void leave()}>
              Log out
            </button>
          </p>
        </div>
      </nav>
      <main id="main" tabIndex={-1}>
        <Pauses />
        <Guard key={`${page} ${visitor.value?.permissions}`} instead="This page could not be drawn. Load it again; the browser's console has the reason.">
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

const LINKS = { opening: "Connecting…", live: "Connected", lost: "Connection lost; trying again…", out: "Logged out" };

const Link = () => (
  <p class={`link ${hub.link.value}`} role="status">
    <span class="dot" aria-hidden="true" /> {LINKS[hub.link.value]}
  </p>
);

function Entry() {
  const [token, setToken] = useState("");
  const [name, setName] = useState("");
  const [why, setWhy] = useState("");
  const [busy, setBusy] = useState(false);
  const come = async (shown: string) => {
    setBusy(true);
    setWhy("");
    try {
      // Six digits come from an authenticator app.
      if (/^[0-9]{6}$/.test(shown)) {
        await logIn(shown, name.trim());
        await look();
      } else await enter(shown);
    } catch (error) {
      setWhy(error instanceof Error ? error.message : String(error));
    }
    setBusy(false);
  };
  useEffect(() => {
    // A login link brings its token after the `#`, which no server and no log sees; it leaves the address at once.
    if (where.value.page !== "enter" || !where.value.of) return;
    const link = where.value.of;
    history.replaceState(null, "", "#/live");
    go("live");
    void come(link);
  }, []);
  return (
    <main class="entry">
      <h1>Tieline</h1>
      <p>This is the console of a hub. Show a member's token, or open the link that the hub printed.</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void come(token.trim());
        }}
      >
        <label>
          Token, or code of an authenticator app
          <input type="password" autocomplete="off" required value={token} onInput={(event) => setToken(event.currentTarget.value)} />
        </label>
        {/^[0-9]+$/.test(token) && (
          <label>
            Name, with a code
            <input autocomplete="username" value={name} onInput={(event) => setName(event.currentTarget.value)} />
          </label>
        )}
        <button type="submit" class="main" disabled={busy || !token.trim()}>
          Come in
        </button>
        {why && (
          <p class="unseen" role="alert">
            {why}
          </p>
        )}
      </form>
      <p class="hint">
        <code>tieline member add NAME</code> makes a member and prints its token; <code>tieline login NAME</code> prints a link.
      </p>
    </main>
  );
}

function App() {
  if (visitor.value === undefined) return <main class="entry">…</main>;
  return visitor.value ? <Console /> : <Entry />;
}

const root = document.getElementById("root");
if (root) render(<App />, root);
void look();
