// Objectives: a board by status; one of them with what happened to it, what was said about it, and what it takes next.
import { useEffect, useState } from "preact/hooks";
import { Conversation } from "./conversations.tsx";
import type { Happening, Objective } from "./hub.ts";
import { Prose, plain } from "./prose.tsx";
import { address, go, where } from "./route.ts";
import { attempt, hub, may, members, now, objectives, readObjectives, visitor } from "./state.ts";
import { ago, dayOf, timeOf } from "./talk.ts";
import { Trace } from "./trace.tsx";

const COLUMNS = ["blocked", "active", "done", "cancelled"] as const;

export function Objectives() {
  const chosen = objectives.value.find((one) => one.id === where.value.of);
  if (chosen) return <OneObjective key={chosen.id} objective={chosen} />;
  return (
    <section class="page">
      <header class="bar">
        <h1>Objectives</h1>
        <span class="count">{objectives.value.length} that you may see</span>
      </header>
      <div class="board">
        {COLUMNS.map((status) => {
          const found = objectives.value.filter((one) => one.status === status);
          return (
            <section key={status} aria-label={status}>
              <h2>
                <span class={`status ${status}`}>{status}</span> <span class="count">{found.length}</span>
              </h2>
              {found.map((one) => (
                <a class="card" key={one.id} href={address("objectives", one.id)}>
                  <b>{plain(one.title)}</b>
                  <span>
                    {plain(one.assignee)} · {ago(one.updated_at_ms, now.value)}
                  </span>
                  {one.block_reason && <span class="unseen">{plain(one.block_reason)}</span>}
                </a>
              ))}
            </section>
          );
        })}
      </div>
      {may("objectives.create") && <NewObjective />}
    </section>
  );
}

function NewObjective() {
  const [open, setOpen] = useState(false);
  const [title, setTitle] = useState("");
  const [outcome, setOutcome] = useState("");
  const [assignee, setAssignee] = useState("");
  const create = () =>
    attempt(async () => {
      const { objective } = await hub.ask("create_objective", { title, outcome, assignee });
      await readObjectives();
      go("objectives", objective.id);
    });
  if (!open) {
    return (
      <p class="line">
        <button type="button" class="main" onClick={() => setOpen(true)}>
          New objective
        </button>
      </p>
    );
  }
  return (
    <form
      class="sheet"
      onSubmit={(event) => {
        event.preventDefault();
        void create();
      }}
    >
      <label>
        Title <input required value={title} onInput={(event) => setTitle(event.currentTarget.value)} />
      </label>
      <label>
        Outcome: when is it done? <input required value={outcome} onInput={(event) => setOutcome(event.currentTarget.value)} />
      </label>
      <label>
        Assignee
        <select required value={assignee} onChange={(event) => setAssignee(event.currentTarget.value)}>
          <option value="">choose</option>
          {members.value.map((member) => (
            <option key={member.name} value={member.name}>
              {plain(member.name)}
            </option>
          ))}
        </select>
      </label>
      <p class="line">
        <button type="submit" class="main">
          Create
        </button>
        <button type="button" onClick={() => setOpen(false)}>
          Not now
        </button>
      </p>
    </form>
  );
}

type Change = Parameters<typeof hub.ask<"change_objective">>[1]["change"];

function OneObjective({ objective }: { objective: Objective }) {
  const [story, setStory] = useState<readonly Happening[]>([]);
  const me = visitor.value?.member;
  const open = objective.status === "active" || objective.status === "blocked";
  const assignee = objective.assignee === me;
  const originator = objective.originator === me;
  useEffect(() => {
    void attempt(async () => {
      setStory((await hub.ask("view_objective", { id: objective.id })).events);
    });
  }, [objective.updated_at_ms]);
  const change = (made: Change, done: string) =>
    void attempt(async () => {
      await hub.ask("change_objective", { id: objective.id, change: made });
      await readObjectives();
    }, done);
  const asking = (question: string, make: (text: string) => Change, done: string) => () => {
    const text = prompt(question);
    if (text) change(make(text), done);
  };
  return (
    <section class="page">
      <header class="bar">
        <h1>{plain(objective.title)}</h1>
        <span class={`status ${objective.status}`}>{objective.status}</span>
        <a href={address("objectives")}>All objectives</a>
      </header>
      <div class="split">
        <div class="scroll sheet" tabIndex={0} role="region" aria-label="Content">
          <p>
            <b>Outcome:</b> {plain(objective.outcome)}
          </p>
          <p>
            {plain(objective.originator)} gave it to <b>{plain(objective.assignee)}</b>
            {objective.watchers.length ? `; watched by ${objective.watchers.map(plain).join(", ")}` : ""}
          </p>
          {objective.block_reason && <p class="unseen">Blocked: {plain(objective.block_reason)}</p>}
          {objective.result && <p>Result: {plain(objective.result)}</p>}
          {objective.body && <Prose text={objective.body} />}
          <p class="line">
            {open && objective.status === "active" && (assignee || may("objectives.cancel")) && (
              <button type="button" onClick={asking("What blocks it?", (reason) => ({ do: "block", reason }), "Blocked.")}>
                Block
              </button>
            )}
            {open && objective.status === "blocked" && (assignee || may("objectives.cancel")) && (
              <button type="button" onClick={() => change({ do: "unblock" }, "It goes on.")}>
                Unblock
              </button>
            )}
            {open && assignee && (
              <button type="button" onClick={asking("What is the result?", (result) => ({ do: "complete", result }), "Completed.")}>
                Complete
              </button>
            )}
            {open && may("objectives.reassign") && (
              <button type="button" onClick={asking("To whom?", (to) => ({ do: "reassign", to }), "Reassigned.")}>
                Reassign
              </button>
            )}
            {open && (originator || may("objectives.watch")) && (
              <button type="button" onClick={asking("Who shall watch it?", (name) => ({ do: "watch", add: [name] }), "Watched.")}>
                Add a watcher
              </button>
            )}
            {open && (originator || may("objectives.cancel")) && (
              <button type="button" class="danger" onClick={asking("Why?", (reason) => ({ do: "cancel", reason }), "Cancelled.")}>
                Cancel
              </button>
            )}
          </p>
          <h2>What happened</h2>
          <ol class="story">
            {story.map((event) => (
              <li key={event.offset}>
                <time>
                  {dayOf(event.at_ms)} {timeOf(event.at_ms)}
                </time>{" "}
                {plain(event.actor)}: {event.what.kind.replace("_", " ")}
                {"reason" in event.what && event.what.reason ? ` — ${plain(event.what.reason)}` : ""}
                {"result" in event.what && event.what.result ? ` — ${plain(event.what.result)}` : ""}
              </li>
            ))}
          </ol>
          {may("activity.read") && <Trace objective={objective} />}
        </div>
        <Conversation key={objective.id} place={`obj:${objective.id}`} />
      </div>
    </section>
  );
}
