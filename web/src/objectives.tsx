// Objectives: a board by status; one of them with its history, its messages, and the next actions.
import { useEffect, useState } from "preact/hooks";
import { giveWork, upload } from "./api.ts";
import { Action, text } from "./action.tsx";
import { Conversation } from "./conversations.tsx";
import type { AnswerOf, Happening, Objective } from "./hub.ts";
import { Files } from "./message.tsx";
import { plain } from "./plain.ts";
import { Prose } from "./prose.tsx";
import { address, go, where } from "./route.ts";
import { attempt, curtailed, hub, may, members, now, objectives, readObjectives, visitor } from "./state.ts";
import { ago, dayOf, timeOf } from "./clock.ts";
import { hasPart } from "./talk.ts";
import { Trace } from "./trace.tsx";
import { blockedOnMe } from "./waits.ts";

const COLUMNS = ["blocked", "active", "done", "cancelled"] as const;
/** Objectives that a column draws, those that wait for the viewer first. */
const CARDS_MAX = 500;

/** Pages of what happened to one objective, at most. */
const STORY_PAGES_MAX = 20;

async function readStory(id: string): Promise<AnswerOf<"view_objective">> {
  let story = await hub.ask("view_objective", { id });
  for (let count = 1; !story.complete && count < STORY_PAGES_MAX; count++) {
    const next = await hub.ask("view_objective", { id, after: story.events.at(-1)?.offset ?? -1 });
    story = { ...next, events: [...story.events, ...next.events] };
  }
  return story;
}

export function Objectives() {
  const id = where.value.of;
  const [former, setFormer] = useState<Objective | null>(null);
  const listed = objectives.value.find((one) => one.id === id);
  const live = hub.link.value === "live";
  useEffect(() => {
    // The objective may have ended so long ago that the board does not have it.
    if (id && live && !listed)
      void hub.ask("view_objective", { id }).then(
        (story) => setFormer(story.objective),
        () => setFormer(null),
      );
  }, [id, live, !listed]);
  const chosen = listed ?? (former?.id === id ? former : undefined);
  if (chosen) return <OneObjective key={chosen.id} objective={chosen} />;
  return (
    <section class="page">
      <header class="bar">
        <h1>Objectives</h1>
        {may("objectives.create") && <NewObjective />}
        <span class="count">
          {objectives.value.length} that you may see{curtailed.value ? ", without the oldest that are over" : ""}
        </span>
      </header>
      <div class="board">
        {COLUMNS.map((status) => {
          const mine = (one: Objective) => (blockedOnMe.value.has(one.id) ? 0 : 1);
          const found = objectives.value
            .filter((one) => one.status === status)
            .toSorted((one, other) => mine(one) - mine(other));
          return (
            <section key={status} aria-label={status}>
              <h2>
                <span class={`status ${status}`}>{status}</span> <span class="count">{found.length}</span>
              </h2>
              {found.length === 0 && <p class="count">none</p>}
              {found.slice(0, CARDS_MAX).map((one) => (
                <a class="card" key={one.id} href={address("objectives", one.id)}>
                  <b>{plain(one.title)}</b>
                  <span>
                    {plain(one.assignee)} · {ago(one.updated_at_ms, now.value)}
                  </span>
                  {one.block_reason && <span class="unseen">{plain(one.block_reason)}</span>}
                  {blockedOnMe.value.has(one.id) && <b class="waiting">waits for you</b>}
                </a>
              ))}
              {found.length > CARDS_MAX && (
                <p class="count">and {(found.length - CARDS_MAX).toLocaleString()} older ones</p>
              )}
            </section>
          );
        })}
      </div>
    </section>
  );
}

/** Members to choose from. */
const Names = ({ but = [] }: { but?: readonly string[] }) => (
  <>
    {members.value
      .filter((member) => !but.includes(member.name))
      .map((member) => (
        <option key={member.name} value={member.name}>
          {plain(member.name)}
        </option>
      ))}
  </>
);

function NewObjective() {
  const create = async (form: FormData) => {
    const fields = {
      title: text(form, "title"),
      outcome: text(form, "outcome"),
      body: text(form, "body"),
      assignee: text(form, "assignee"),
    };
    const watchers = form.getAll("watchers").map(String);
    const files = form.getAll("files").filter((one): one is File => one instanceof File && one.size > 0);
    let id: string;
    if (files.length) {
      const kept = await Promise.all(files.map((file) => upload(file, visitor.value?.member ?? "")));
      id = await giveWork({ ...fields, watchers }, kept);
    } else id = (await hub.ask("create_objective", { ...fields, watchers })).objective.id;
    await readObjectives();
    go("objectives", id);
  };
  return (
    <Action name="New objective" submit="Create" title="New objective" main act={create}>
      <label>
        Title <input name="title" required maxLength={200} />
      </label>
      <label>
        Outcome: when is it done? <textarea name="outcome" required rows={2} maxLength={2048} />
      </label>
      <label>
        Assignee
        <select name="assignee" required>
          <option value="">choose</option>
          <Names />
        </select>
      </label>
      <label>
        What else should be known (markdown) <textarea name="body" rows={4} maxLength={4096} />
      </label>
      <Several legend="Watchers" name="watchers" of={members.value.map((member) => member.name)} />
      <label>
        Files <input name="files" type="file" multiple />
      </label>
    </Action>
  );
}

/** Some of several names, each with a box of its own. */
const Several = ({ legend, name, of }: { legend: string; name: string; of: readonly string[] }) => (
  <fieldset>
    <legend>{legend}</legend>
    {of.map((one) => (
      <label key={one} class="check">
        <input type="checkbox" name={name} value={one} /> {plain(one)}
      </label>
    ))}
  </fieldset>
);

type Change = Parameters<typeof hub.ask<"change_objective">>[1]["change"];

/** The changes that the hub says the viewer may make. */
function Actions({ objective }: { objective: Objective }) {
  const { status, watchers, may: allowed = [] } = objective;
  const can = (what: Change["do"]) => allowed.includes(what);
  if (!allowed.length) return null;
  const change = async (made: Change) => {
    await hub.ask("change_objective", { id: objective.id, change: made });
    await readObjectives();
  };
  return (
    <div class="line">
      {can("unblock") && (
        <button type="button" class="main" onClick={() => void attempt(() => change({ do: "unblock" }), "It goes on.")}>
          Unblock
        </button>
      )}
      {can("complete") && (
        <Action
          name="Complete"
          title="Complete this objective"
          main={status === "active"}
          done="Completed."
          act={(form) => change({ do: "complete", result: text(form, "result") })}
        >
          <label>
            What is the result? <textarea name="result" required rows={3} />
          </label>
        </Action>
      )}
      {can("block") && (
        <Action
          key={status}
          {...(status === "blocked"
            ? { name: "Change reason", title: "Change why it is blocked", done: "Changed." }
            : { name: "Block", title: "Block this objective", done: "Blocked." })}
          act={(form) => change({ do: "block", reason: text(form, "reason") })}
        >
          <label>
            What blocks it? <textarea name="reason" required rows={3} />
          </label>
          <p class="count">Whoever the reason names sees it first.</p>
        </Action>
      )}
      {can("reassign") && (
        <Action
          name="Reassign"
          title="Give it to somebody else"
          done="Reassigned."
          act={(form) =>
            change({
              do: "reassign",
              to: text(form, "to"),
              ...(text(form, "note") ? { note: text(form, "note") } : {}),
            })
          }
        >
          <label>
            To whom?
            <select name="to" required>
              <Names but={[objective.assignee]} />
            </select>
          </label>
          <label>
            A note, if there is something to say <textarea name="note" rows={2} />
          </label>
        </Action>
      )}
      {can("watch") && (
        <Action
          name="Watchers"
          title="Who watches it"
          submit="Change"
          done="Changed."
          act={(form) =>
            change({ do: "watch", add: form.getAll("add").map(String), remove: form.getAll("remove").map(String) })
          }
        >
          {watchers.length > 0 && <Several legend="Take away" name="remove" of={watchers} />}
          <Several legend="Add" name="add" of={candidates(objective)} />
        </Action>
      )}
      {can("cancel") && (
        <Action
          name="Cancel"
          title="Cancel this objective"
          submit="Cancel it"
          danger
          done="Cancelled."
          act={(form) => change({ do: "cancel", ...(text(form, "reason") ? { reason: text(form, "reason") } : {}) })}
        >
          <label>
            Why? <textarea name="reason" rows={2} />
          </label>
        </Action>
      )}
    </div>
  );
}

const candidates = ({ assignee, originator, watchers }: Objective): readonly string[] =>
  members.value.map((member) => member.name).filter((name) => ![assignee, originator, ...watchers].includes(name));

function OneObjective({ objective }: { objective: Objective }) {
  const [story, setStory] = useState<readonly Happening[]>([]);
  useEffect(() => {
    void attempt(async () => setStory((await readStory(objective.id)).events));
  }, [objective.updated_at_ms]);
  return (
    <section class="page">
      <header class="bar">
        <h1>{plain(objective.title)}</h1>
        <span class={`status ${objective.status}`}>{objective.status}</span>
        <a href={address("objectives")}>All objectives</a>
      </header>
      <div class="split">
        <div class="scroll sheet" tabIndex={0} role="region" aria-label="Content">
          <dl class="facts">
            <dt>Outcome</dt>
            <dd>{plain(objective.outcome)}</dd>
            <dt>Assignee</dt>
            <dd>
              <a href={address("members", objective.assignee)}>{plain(objective.assignee)}</a>, given by{" "}
              {plain(objective.originator)}
            </dd>
            <dt>Watchers</dt>
            <dd>{objective.watchers.length ? objective.watchers.map(plain).join(", ") : "nobody"}</dd>
            {objective.block_reason && (
              <>
                <dt>Blocked</dt>
                <dd class="unseen">{plain(objective.block_reason)}</dd>
              </>
            )}
            {objective.result && (
              <>
                <dt>Result</dt>
                <dd>{plain(objective.result)}</dd>
              </>
            )}
          </dl>
          {objective.body && <Prose text={objective.body} />}
          <Files of={objective.attachments} closed={!hasPart(`obj:${objective.id}`)} />
          <Actions objective={objective} />
          <h2>What happened</h2>
          <ol class="story">
            {story.map((event) => (
              <li key={event.offset}>
                <time>
                  {dayOf(event.at_ms)} {timeOf(event.at_ms)}
                </time>{" "}
                <b>{plain(event.actor)}</b> {told(event.what)}
              </li>
            ))}
          </ol>
          {may("activity.read") && <Trace objective={objective} />}
        </div>
        <Conversation key={objective.id} place={`obj:${objective.id}`} title="What was said" />
      </div>
    </section>
  );
}

/** Return a change of an objective as a sentence. */
function told(what: Happening["what"]): string {
  const because = (words: string | null | undefined) => (words ? `: ${plain(words)}` : "");
  switch (what.kind) {
    case "assigned":
      return `gave it to ${plain(what.assignee)}`;
    case "blocked":
      return `blocked it${because(what.reason)}`;
    case "unblocked":
      return "let it go on";
    case "completed":
      return `completed it${because(what.result)}`;
    case "cancelled":
      return `cancelled it${because(what.reason)}`;
    case "reassigned":
      return `took it from ${plain(what.from)} and gave it to ${plain(what.to)}${because(what.note)}`;
    case "watcher_added":
      return `let ${plain(what.name)} watch it`;
    case "watcher_removed":
      return `let ${plain(what.name)} watch it no more`;
  }
}
