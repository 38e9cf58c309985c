// Login: by a token, by a link, by a code of an authenticator app, or by the approval of somebody who is logged in.
import { useEffect, useState } from "preact/hooks";
import { EXPIRED, type Request, askForToken, dropToken, fetchToken } from "./api.ts";
import { where } from "./route.ts";
import { enter, enterByCode } from "./state.ts";

/** By how much a hub that is asked too often wants to be asked less often. */
const SLOWER_S = 5;

const said = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** Come in with what a person shows: a code of an authenticator app has six digits, all else is a token. */
async function comeIn(shown: string, name: string): Promise<void> {
  if (!/^[0-9]{6}$/.test(shown)) {
    await enter(shown);
    return;
  }
  await enterByCode(shown, name);
}

export function Entry() {
  const [token, setToken] = useState("");
  const [name, setName] = useState("");
  const [why, setWhy] = useState("");
  const [busy, setBusy] = useState(false);
  const come = async (shown: string) => {
    setBusy(true);
    setWhy("");
    try {
      await comeIn(shown, name.trim());
    } catch (error) {
      setWhy(said(error));
    }
    setBusy(false);
  };
  const link = where.value.page === "enter" ? where.value.of : "";
  useEffect(() => {
    if (!link) return;
    // A login link has its token after the `#`, which no server and no log sees. Remove it from the address at once.
    location.replace("#/home");
    void come(link);
  }, [link]);
  return (
    <main class="entry">
      <h1>Tieline</h1>
      <p>This is the console of a hub. Enter a member's token, or open the link that the hub printed.</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void come(token.trim());
        }}
      >
        <label>
          Token, or code of an authenticator app
          <input
            type="password"
            autocomplete="off"
            required
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        {/^[0-9]+$/.test(token) && (
          <label>
            Name, with a code
            <input autocomplete="username" value={name} onInput={(event) => setName(event.currentTarget.value)} />
          </label>
        )}
        <button type="submit" class="main" disabled={busy || !token.trim()}>
          Sign in
        </button>
        {why && (
          <p class="unseen" role="alert">
            {why}
          </p>
        )}
      </form>
      <Approval />
      <p class="hint">
        <code>tieline member add NAME</code> makes a member and prints its token; <code>tieline login NAME</code> prints
        a link.
      </p>
    </main>
  );
}

/** Somebody who manages members lets this browser in: it shows them a code, and waits. */
function Approval() {
  const [request, setRequest] = useState<Request | null>(null);
  const [why, setWhy] = useState("");
  const [busy, setBusy] = useState(false);
  const ask = async () => {
    setBusy(true);
    setWhy("");
    try {
      setRequest(await askForToken("a browser, for the console"));
    } catch (error) {
      setWhy(said(error));
    }
    setBusy(false);
  };
  useEffect(() => {
    if (!request) return;
    const over = (reason: string) => {
      setWhy(reason);
      setRequest(null);
    };
    const until = Date.now() + request.expires_in * 1000;
    let seconds = request.interval;
    let timer: ReturnType<typeof setTimeout>;
    const poll = async () => {
      const found = await fetchToken(request.device_code);
      if ("token" in found) {
        await enter(found.token);
        // The browser has a session of its own now: nobody needs this token any more.
        await dropToken(found.tokenId).catch(() => undefined);
        return;
      }
      if (found.wait === "no") over(found.why);
      else if (Date.now() > until) over(EXPIRED);
      else {
        if (found.wait === "slower") seconds += SLOWER_S;
        rest();
      }
    };
    const rest = () => {
      timer = setTimeout(() => void poll().catch((error: unknown) => over(said(error))), seconds * 1000);
    };
    rest();
    return () => clearTimeout(timer);
  }, [request]);
  return (
    <section aria-label="Access">
      {request ? (
        <>
          <p role="status">
            Somebody who manages members finds this code under Members, and says who you are:{" "}
            <code class="code">{request.user_code}</code>
          </p>
          <p class="line">
            <button type="button" onClick={() => setRequest(null)}>
              Cancel
            </button>
          </p>
        </>
      ) : (
        <button type="button" disabled={busy} onClick={() => void ask()}>
          Ask for access
        </button>
      )}
      {why && (
        <p class="unseen" role="alert">
          {why}
        </p>
      )}
    </section>
  );
}
