// Facts about a member, the ways to reach it, its tokens, and what only a manager of members does.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { Action } from "./action.tsx";
import { ago, momentOf } from "./clock.ts";
import { Sessions } from "./doing.tsx";
import type { Leg, Member, Reach, Token } from "./hub.ts";
import { plain } from "./plain.ts";
import { address, go } from "./route.ts";
import { attempt, hub, may, now, readRoster, visitor } from "./state.ts";
import { waits } from "./waits.ts";
import { When } from "./when.tsx";
import { evidenceOf } from "./work.ts";

/** Things for which a member waits from the viewer. */
export function Waits({ name }: { name: string }) {
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

/** A token that was just made: it is shown this once. */
export const fresh = signal<{ of: string; token: string } | null>(null);

function Fresh({ of }: { of: string }) {
  if (fresh.value?.of !== of) return null;
  return (
    <p class="note">
      The new token, shown this once: <code class="token">{fresh.value.token}</code>
    </p>
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

export function Facts({ member }: { member: Member }) {
  const own = member.name === visitor.value?.member;
  const evidence = evidenceOf(member);
  return (
    <>
      {member.description && <p>{plain(member.description)}</p>}
      <dl class="facts">
        <dt>Last seen</dt>
        <dd>{member.last_seen_ms ? <When ms={member.last_seen_ms} /> : "never"}</dd>
        {evidence && member.evidence && (
          <>
            <dt>Evidence</dt>
            <dd>
              {evidence}, <When ms={member.evidence.at_ms} />
            </dd>
          </>
        )}
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
      {(own || may("members.manage")) && <Ways name={member.name} />}
    </>
  );
}

/** Permissions and tokens, for the member itself and for those who manage members. */
export function Administration({ member }: { member: Member }) {
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
    <>
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
                  {token.expires_at_ms ? `, until ${momentOf(token.expires_at_ms)}` : ""}
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
    </>
  );
}
