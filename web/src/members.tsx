// Members: who is there, by what they are reached, and what waits for them; their tokens, for who may.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { type Device, approve, pending, reject } from "./ac7.ts";
import type { Member, Token } from "./hub.ts";
import { Wire } from "./message.tsx";
import { plain } from "./prose.tsx";
import { address, go, where } from "./route.ts";
import { attempt, byName, hub, may, members, now, readRoster, visitor } from "./state.ts";
import { ago } from "./talk.ts";

const DEVICES_MS = 5000;

/** Those who need somebody first: a backlog that nobody drains, then who is there. */
const need = (member: Member) => (member.sessions.length ? 1e6 : 0) - member.backlog * (member.sessions.length ? 1 : 1000);

export function Presence({ member }: { member: Member }) {
  if (member.busy) return <span class="presence busy">at work</span>;
  if (member.sessions.length) return <span class="presence here">here</span>;
  return <span class="presence gone">{member.last_seen_ms ? `gone for ${ago(member.last_seen_ms, now.value)}` : "never here"}</span>;
}

export function Members() {
  const [asked, setAsked] = useState("");
  const shown = members.value
    .filter((member) => `${member.name} ${member.title ?? ""}`.toLowerCase().includes(asked.toLowerCase()))
    .toSorted((one, other) => need(one) - need(other));
  const chosen = byName.value.get(where.value.of);
  return (
    <section class="page">
      <header class="bar">
        <h1>Members</h1>
        <input type="search" placeholder="Filter" aria-label="Filter" value={asked} onInput={(event) => setAsked(event.currentTarget.value)} />
        <span class="count">{members.value.length} members</span>
      </header>
      <div class="split">
        <div class="scroll" tabIndex={0} role="region" aria-label="Content">
          <table>
            <thead>
              <tr>
                <th>Name</th>
                <th>Presence</th>
                <th>Reached by</th>
                <th class="num">Waiting</th>
                <th>Title</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((member) => (
                <tr key={member.name} class={member.name === where.value.of ? "chosen" : ""}>
                  <td>
                    <a href={address("members", member.name)}>{plain(member.name)}</a>
                    {member.kind === "human" ? " (person)" : ""}
                  </td>
                  <td>
                    <Presence member={member} />
                  </td>
                  <td>
                    {[...new Set(member.sessions)].map((name) => (
                      <Wire key={name} name={name} />
                    ))}
                  </td>
                  <td class={`num${member.backlog > 0 && !member.sessions.length ? " unseen" : ""}`}>{member.backlog || ""}</td>
                  <td>{plain(member.title ?? "")}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {may("members.manage") && <NewMember />}
          {may("members.manage") && <Devices />}
        </div>
        {chosen && <OneMember key={chosen.name} member={chosen} />}
      </div>
    </section>
  );
}

/** A token that was just made: it is shown this once. */
const fresh = signal<{ of: string; token: string } | null>(null);

function Fresh({ of }: { of: string }) {
  if (fresh.value?.of !== of) return null;
  return (
    <p class="note">
      The new token, shown this once: <code class="token">{fresh.value.token}</code>
    </p>
  );
}

function NewMember() {
  const [name, setName] = useState("");
  const add = () =>
    attempt(async () => {
      const { token, member } = await hub.ask("add_member", { name: name.trim() });
      fresh.value = { of: member, token };
      setName("");
      await readRoster();
      go("members", member);
    });
  return (
    <form
      class="line"
      onSubmit={(event) => {
        event.preventDefault();
        void add();
      }}
    >
      <label>
        New member <input value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <button type="submit" disabled={!name.trim()}>
        Add
      </button>
    </form>
  );
}

/** Devices that ask for a token: their person reads out a code, and somebody who manages members says whose they are. */
function Devices() {
  const [waiting, setWaiting] = useState<readonly Device[]>([]);
  const read = async () => {
    // A hub that does not speak ac7 has no devices.
    setWaiting(await pending().catch(() => []));
  };
  useEffect(() => {
    void read();
    const timer = setInterval(() => void read(), DEVICES_MS);
    return () => clearInterval(timer);
  }, []);
  if (!waiting.length) return null;
  return (
    <section class="sheet" aria-label="Devices">
      <h2>Devices that wait for a token</h2>
      {waiting.map((device) => (
        <form
          class="line"
          key={device.userCode}
          onSubmit={(event) => {
            event.preventDefault();
            const name = new FormData(event.currentTarget).get("member");
            void attempt(async () => {
              await approve(device.userCode, String(name));
              await read();
            }, "It has its token now.");
          }}
        >
          <code>{device.userCode}</code> {plain(device.labelHint)} {device.sourceIp ? `from ${device.sourceIp}` : ""}
          <label>
            for{" "}
            <select name="member" required>
              {members.value.map((member) => (
                <option key={member.name}>{plain(member.name)}</option>
              ))}
            </select>
          </label>
          <button type="submit" class="main">
            Approve
          </button>
          <button
            type="button"
            onClick={() =>
              void attempt(async () => {
                await reject(device.userCode);
                await read();
              }, "Refused.")
            }
          >
            Refuse
          </button>
        </form>
      ))}
    </section>
  );
}

function OneMember({ member }: { member: Member }) {
  const [tokens, setTokens] = useState<readonly Token[] | null>(null);
  const own = member.name === visitor.value?.member;
  const manages = may("members.manage");
  const read = () =>
    attempt(async () => {
      setTokens((await hub.ask("tokens", { name: member.name })).tokens);
    });
  useEffect(() => {
    if (own || manages) void read();
  }, [member.name]);
  const issue = () =>
    attempt(async () => {
      const issued = await hub.ask("issue_token", { name: member.name, label: "made in the console" });
      fresh.value = { of: member.name, token: issued.token };
      await read();
    });
  const remove = () => {
    if (!confirm(`Remove ${member.name}? Its tokens die, and what waits for it is dead.`)) return;
    void attempt(async () => {
      await hub.ask("remove_member", { name: member.name });
      await readRoster();
      go("members");
    }, `${member.name} was removed.`);
  };
  return (
    <aside aria-label={member.name}>
      <header>
        <h2>{plain(member.name)}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={() => go("members")}>
          ✕
        </button>
      </header>
      <p>
        <Presence member={member} />
        {member.description ? ` · ${plain(member.description)}` : ""}
      </p>
      {!own && (
        <p>
          <a href={address("talk", `@${member.name}`)}>Write to {plain(member.name)}</a>
        </p>
      )}
      {member.permissions.length > 0 && <p>May: {member.permissions.join(", ")}</p>}
      <Fresh of={member.name} />
      {tokens && (
        <>
          <h3>Tokens</h3>
          <ul class="tokens">
            {tokens.map((token) => (
              <li key={token.id}>
                {plain(token.label) || "first token"}
                <small>
                  {" "}
                  made {ago(token.created_at_ms, now.value)} ago
                  {token.last_used_ms ? `, used ${ago(token.last_used_ms, now.value)} ago` : ", never used"}
                  {token.expires_at_ms ? `, until ${new Date(token.expires_at_ms).toLocaleString()}` : ""}
                </small>
                <button
                  type="button"
                  class="quiet"
                  onClick={() =>
                    void attempt(async () => {
                      await hub.ask("revoke_token", { name: member.name, id: token.id });
                      await read();
                    }, "Revoked.")
                  }
                >
                  Revoke
                </button>
              </li>
            ))}
          </ul>
          <p class="line">
            <button type="button" onClick={() => void issue()}>
              Issue a token
            </button>
            {manages && !own && (
              <button type="button" class="danger" onClick={remove}>
                Remove member
              </button>
            )}
          </p>
        </>
      )}
    </aside>
  );
}
