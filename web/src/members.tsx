// Members: who is here and what each does, who waits for the viewer, and the messages that wait for each.
import { useState } from "preact/hooks";
import { Waits, fresh } from "./administration.tsx";
import { Devices } from "./devices.tsx";
import { Doing, Sessions } from "./doing.tsx";
import type { Member } from "./hub.ts";
import { OneMember } from "./member.tsx";
import { plain } from "./plain.ts";
import { address, go, where } from "./route.ts";
import { Share } from "./share.tsx";
import { attempt, byName, hub, may, members, objectives, readRoster, visitor } from "./state.ts";
import { waits } from "./waits.ts";
import { type Work, openWork, workOf } from "./work.ts";

/** Those who need somebody first: who waits for the viewer, a backlog that nobody drains, who is there, who is not. */
function rank({ name, backlog, sessions }: Member): number {
  if (waits.value.has(name)) return 0;
  if (sessions.length) return 2;
  return backlog ? 1 : 3;
}

export function Members() {
  const chosen = byName.value.get(where.value.of);
  return chosen ? <OneMember key={chosen.name} member={chosen} /> : <Roster />;
}

function Roster() {
  const [asked, setAsked] = useState("");
  const shown = members.value
    .filter((member) => `${member.name} ${member.title ?? ""}`.toLowerCase().includes(asked.toLowerCase()))
    .toSorted((one, other) => rank(one) - rank(other) || other.backlog - one.backlog);
  const work = openWork(objectives.value);
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
        <span class="count">
          {members.value.length} {members.value.length === 1 ? "member" : "members"}
        </span>
        <Share />
      </header>
      <div class="scroll" tabIndex={0} role="region" aria-label="Content">
        {where.value.of && <p class="hint">No member is called {plain(where.value.of)}.</p>}
        <table class="roster">
          <thead>
            <tr>
              <th>Name</th>
              <th>State</th>
              <th class="detail">Works on</th>
              <th class="detail">Sessions</th>
              <th class="num">Backlog</th>
              <th>Waits for you</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((member) => (
              <OneRow key={member.name} member={member} work={workOf(member, work.get(member.name))} />
            ))}
          </tbody>
        </table>
        {may("members.manage") && <NewMember />}
        {may("members.manage") && <Devices />}
      </div>
    </section>
  );
}

const OneRow = ({ member, work }: { member: Member; work: Work }) => (
  <tr>
    <td>
      <a href={address("members", member.name)}>{plain(member.name)}</a>
      {member.name === visitor.value?.member ? " (you)" : member.kind === "human" ? " (person)" : ""}
      {member.title && <small class="role">{plain(member.title)}</small>}
    </td>
    <td>
      <Doing work={work} />
    </td>
    <td class="detail on">{work.on && <a href={address("objectives", work.on.id)}>{plain(work.on.title)}</a>}</td>
    <td class="detail">
      <Sessions of={member.sessions} />
    </td>
    <td class={`num${member.backlog > 0 && !member.sessions.length ? " unseen" : ""}`}>{member.backlog || ""}</td>
    <td>
      <Waits name={member.name} />
    </td>
  </tr>
);

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
