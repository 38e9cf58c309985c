// Members: who is connected, who waits for whom, the ways to reach them, their waiting messages, and their tokens.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { Action } from "./action.tsx";
import { Devices } from "./devices.tsx";
import type { Leg, Member, Reach, Token } from "./hub.ts";
import { Wire } from "./message.tsx";
import { plain } from "./plain.ts";
import { address, go, where } from "./route.ts";
import { attempt, byName, hub, may, members, now, readRoster, visitor } from "./state.ts";
import { ago } from "./clock.ts";
import { waits } from "./waits.ts";

/** Those who need somebody first: who waits for the viewer, a backlog that nobody drains, who is there, who is not. */
function rank({ name, backlog, sessions }: Member): number {
  if (waits.value.has(name)) return 0;
  if (sessions.length) return 2;
  return backlog ? 1 : 3;
}

/** Protocols of sessions, each once, with how many there are. */
function Sessions({ of }: { of: readonly string[] }) {
  const names = [...new Set(of)].toSorted();
  return (
    <>
      {names.map((name) => {
        const count = of.filter((one) => one === name).length;
        return (
          <span key={name}>
            <Wire name={name} />
            {count > 1 && <small>×{count} </small>}
          </span>
        );
      })}
    </>
  );
}

/** Things for which a member waits from the viewer. */
function Waits({ name }: { name: string }) {
  const found = waits.value.get(name);
  if (!found) return null;
  return (
    <ul class="waits">
      {found.blocked.map((one) => (
        <li key={one.id}>
          <span class="unseen">blocked:</span> <a href={address("objectives", one.id)}>{plain(one.title)}</a>
        </li>
      ))}
      {found.asked && (
        <li>
          <a href={address("talk", `@${name}`, found.asked)}>an answer</a>{" "}
          <small>for {ago(found.asked.sent_at_ms, now.value)}</small>
        </li>
      )}
    </ul>
  );
}

export function Presence({ member }: { member: Member }) {
  if (member.busy) return <span class="presence busy">at work</span>;
  if (member.sessions.length) return <span class="presence here">here</span>;
  return <span class="presence gone">away</span>;
}

export function Members() {
  const [asked, setAsked] = useState("");
  const shown = members.value
    .filter((member) => `${member.name} ${member.title ?? ""}`.toLowerCase().includes(asked.toLowerCase()))
    .toSorted((one, other) => rank(one) - rank(other) || other.backlog - one.backlog);
  const chosen = byName.value.get(where.value.of);
  return (
    <section class="page">
      <header class="bar">
        <h1>Members</h1>
        <input
          type="search"
          placeholder="Filter"
          aria-label="Filter"
          value={asked}
          onInput={(event) => setAsked(event.currentTarget.value)}
        />
        <span class="count">{members.value.length} members</span>
      </header>
      <div class="split">
        <div class="scroll" tabIndex={0} role="region" aria-label="Content">
          <table>
            <thead>
              <tr>
                <th>Name</th>
                <th>Presence</th>
                <th class="detail">Last seen</th>
                <th class="detail">Sessions</th>
                <th class="num">Backlog</th>
                <th>Waits for you</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((member) => (
                <tr key={member.name} class={member.name === where.value.of ? "chosen" : ""}>
                  <td>
                    <a href={address("members", member.name)}>{plain(member.name)}</a>
                    {member.kind === "human" ? " (person)" : ""}
                    {member.title && <small class="role">{plain(member.title)}</small>}
                  </td>
                  <td>
                    <Presence member={member} />
                  </td>
                  <td class="detail">
                    {member.sessions.length
                      ? "now"
                      : member.last_seen_ms
                        ? `${ago(member.last_seen_ms, now.value)} ago`
                        : "never"}
                  </td>
                  <td class="detail">
                    <Sessions of={member.sessions} />
                  </td>
                  <td class={`num${member.backlog > 0 && !member.sessions.length ? " unseen" : ""}`}>
                    {member.backlog || ""}
                  </td>
                  <td>
                    <Waits name={member.name} />
                  </td>
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

/** In which ways a member is reached, one after the other, and how long each is given. */
function Ways({ name }: { name: string }) {
  const [reach, setReach] = useState<Reach | null>(null);
  useEffect(() => {
    void attempt(async () => setReach((await hub.ask("reach", { name })).reach));
  }, [name]);
  if (!reach) return null;
  const legs = reach.legs ?? [];
  return (
    <>
      <h3>Reached by</h3>
      {legs.length === 0 && (
        <p>Whatever it is connected by. Nothing falls to another way; what it does not read waits.</p>
      )}
      <ol class="ways">
        {legs.map((leg, index) => (
          <li key={leg.way}>
            <b>{leg.way}</b>: {WAYS[leg.way]}
            {leg.way === "notify" && reach.notify ? ` (${plain(reach.notify)})` : ""}
            {index < legs.length - 1 && <small> for {lasted(leg.wait_ms)}, then</small>}
          </li>
        ))}
      </ol>
      {legs.length > 0 && typeof reach.urgent_ms === "number" && (
        <p>What is urgent gives each way {lasted(reach.urgent_ms)}.</p>
      )}
    </>
  );
}

const WAYS: Record<Leg["way"], string> = {
  push: "written to a session that listens",
  hook: "shown by its program between two turns",
  pty: "typed into its terminal",
  pull: "read by itself",
  notify: "a person is told",
};
const lasted = (ms: number) => (ms < 1000 ? `${ms} ms` : ago(0, ms));

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
    return () => {
      if (fresh.value?.of === member.name) fresh.value = null;
    };
  }, [member.name]);
  const issue = () =>
    attempt(async () => {
      const issued = await hub.ask("issue_token", { name: member.name, label: "made in the console" });
      fresh.value = { of: member.name, token: issued.token };
      await read();
    });
  const rotate = async () => {
    const issued = await hub.ask("rotate_token", { name: member.name });
    fresh.value = { of: member.name, token: issued.token };
    await read();
  };
  const remove = async () => {
    await hub.ask("remove_member", { name: member.name });
    await readRoster();
    go("members");
  };
  return (
    <aside aria-label={member.name}>
      <header>
        <h2>{plain(member.name)}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={() => go("members")}>
          ✕
        </button>
      </header>
      {member.description && <p>{plain(member.description)}</p>}
      <dl class="facts">
        <dt>Presence</dt>
        <dd>
          <Presence member={member} />
        </dd>
        <dt>Last seen</dt>
        <dd>
          {member.last_seen_ms
            ? `${new Date(member.last_seen_ms).toLocaleString()} (${ago(member.last_seen_ms, now.value)} ago)`
            : "never"}
        </dd>
        <dt>Sessions</dt>
        <dd>{member.sessions.length ? <Sessions of={member.sessions} /> : "none"}</dd>
        <dt>Backlog</dt>
        <dd class={member.backlog && !member.sessions.length ? "unseen" : ""}>
          {member.backlog || "nothing"}
          {member.held ? `, ${member.held} held` : ""}
        </dd>
        {waits.value.has(member.name) && (
          <>
            <dt>Waits for you</dt>
            <dd>
              <Waits name={member.name} />
            </dd>
          </>
        )}
      </dl>
      {(own || manages) && <Ways name={member.name} />}
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
              <Action
                name="Rotate"
                title={`Replace the tokens of ${plain(member.name)}`}
                act={rotate}
                done="There is one token now."
              >
                <p>
                  Every token of {plain(member.name)} dies, its sessions and its authenticator app with them. One new
                  token is made.
                </p>
              </Action>
            )}
            {manages && !own && (
              <Action
                name="Remove member"
                title={`Remove ${plain(member.name)}`}
                danger
                act={remove}
                done={`${plain(member.name)} was removed.`}
              >
                <p>Its tokens die, and what waits for it is given up. What it said stays in the log.</p>
              </Action>
            )}
          </p>
        </>
      )}
    </aside>
  );
}
