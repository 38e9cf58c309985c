// Objectives: a board by status; one of them with its messages, in which its changes are, and the next actions.
import { signal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { giveWork, upload } from "./api.ts";
import { Action, text } from "./action.tsx";
import { asksOfWork } from "./asks.ts";
import { Conversation } from "./conversations.tsx";
import type { Objective } from "./hub.ts";
import { Files } from "./message.tsx";
import { latest } from "./places.tsx";
import { oneLine, plain } from "./plain.ts";
import { Prose } from "./prose.tsx";
import { address, go, where } from "./route.ts";
import { attempt, curtailed, hub, may, members, now, objectives, readObjectives, visitor } from "./state.ts";
import { ago } from "./clock.ts";
import { Select } from "./select.tsx";
import { Share } from "./share.tsx";
import { shortId } from "./short.ts";
import { hasPart } from "./talk.ts";
import { Trace } from "./trace.tsx";
import { blockedOnMe } from "./waits.ts";
import { When } from "./when.tsx";

const COLUMNS = ["blocked", "active", "done", "cancelled"] as const;
/** Objectives that a column draws, those that wait for the viewer first. */
const CARDS_MAX = 500;
/** Of ended objectives, so many are drawn until one asks for more: few people look for older ones. */
const ENDED = 20;
const OUTCOME = 160;

/** Assignee whose objectives are shown; nobody's name shows all. It stays while one looks at an objective. */
const chosenAssignee = signal("");

export function Objectives() {
  const id = where.value.of;
  const [former, setFormer] = useState<Objective | null | undefined>(undefined);
  const listed = objectives.value.find((one) => one.id === id);
  const live = hub.link.value === "live";
  useEffect(() => {
    setFormer(undefined);
    // The objective may have ended so long ago that the board does not have it.
    if (id && live && !listed)
      void hub.ask("view_objective", { id }).then(
        (story) => setFormer(story.objective),
        () => setFormer(null),
      );
  }, [id, live, !listed]);
  const chosen = listed ?? (former?.id === id ? former : undefined);
  if (chosen) return <OneObjective key={chosen.id} objective={chosen} />;
  const me = visitor.value?.member;
  const assignees = [...new Set(objectives.value.map((one) => one.assignee))].toSorted();
  const shown = objectives.value.filter((one) => !chosenAssignee.value || one.assignee === chosenAssignee.value);
  return (
    <section class="page">
      <header class="bar">
        <h1>Objectives</h1>
        {may("objectives.create") && <NewObjective />}
        <Select
          label="Assignee"
          value={chosenAssignee.value}
          choose={(name) => {
            chosenAssignee.value = name;
          }}
          options={[
            ["", "of everybody"],
            ...assignees.map((name) => [name, name === me ? `${name} (you)` : name] as const),
          ]}
        />
        <span class="count">
          {shown.length.toLocaleString()} that you may see{curtailed.value ? ", without the oldest that ended" : ""}
        </span>
        <Share asks={asksOfWork(chosenAssignee.value)} />
      </header>
      {id && former === null && (
        <p class="hint doubt">There is no objective “{plain(shortId(id))}” that you may see.</p>
      )}
      <div class="board" tabIndex={0} role="region" aria-label="Board">
        {COLUMNS.map((status) => (
          <Column
            key={`${status} ${chosenAssignee.value}`}
            status={status}
            of={shown.filter((one) => one.status === status)}
          />
        ))}
      </div>
    </section>
  );
}

function Column({ status, of }: { status: string; of: readonly Objective[] }) {
  const ended = status === "done" || status === "cancelled";
  const [most, setMost] = useState(ended ? ENDED : CARDS_MAX);
  const mine = (one: Objective) => (blockedOnMe.value.has(one.id) ? 0 : 1);
  const found = of.toSorted((one, other) => mine(one) - mine(other) || other.updated_at_ms - one.updated_at_ms);
  return (
    <section aria-label={status}>
      <h2>
        <span class={`status ${status}`}>{status}</span> <span class="count">{found.length.toLocaleString()}</span>
      </h2>
      {found.slice(0, most).map((one) => (
        <Card key={one.id} objective={one} />
      ))}
      {found.length > most && (
        <p class="count">
          and {(found.length - most).toLocaleString()} older ones{" "}
          {most < CARDS_MAX && (
            <button type="button" class="quiet" onClick={() => setMost(CARDS_MAX)}>
              Show
            </button>
          )}
        </p>
      )}
    </section>
  );
}

/** An objective as the board has it: what it is for, who has it since when, and where it stands. */
function Card({ objective: one }: { objective: Objective }) {
  const said = latest.value.get(`obj:${one.id}`)?.last;
  const open = one.status === "blocked" || one.status === "active";
  return (
    <a class="card" href={address("objectives", one.id)}>
      <b>{plain(one.title)}</b>
      <span>
        {plain(one.assignee)} ·{" "}
        {open ? (
          `open for ${ago(one.created_at_ms, now.value)}`
        ) : (
          <When ms={one.completed_at_ms ?? one.updated_at_ms} />
        )}
      </span>
      {one.result ? <p>{oneLine(one.result, OUTCOME)}</p> : <p class="outcome">{oneLine(one.outcome, OUTCOME)}</p>}
      {one.block_reason && <p class="unseen">{oneLine(one.block_reason, OUTCOME)}</p>}
      {open && said && (said.kind ?? "chat") === "chat" && (
        <p class="last">
          {plain(said.from)}: {oneLine(said.body, OUTCOME)} · <When ms={said.sent_at_ms} />
        </p>
      )}
      {blockedOnMe.value.has(one.id) && (
        <b class="waiting">waiting for your answer, {ago(one.updated_at_ms, now.value)}</b>
      )}
    </a>
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
          <option value="">Choose…</option>
          <Names />
        </select>
      </label>
      <label>
        Details (markdown) <textarea name="body" rows={4} maxLength={4096} />
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
        <button type="button" class="main" onClick={() => void attempt(() => change({ do: "unblock" }), "Unblocked.")}>
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
          <p class="count">A member that the reason names sees it first.</p>
        </Action>
      )}
      {can("reassign") && (
        <Action
          name="Reassign"
          title="Reassign this objective"
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
            New assignee
            <select name="to" required>
              <Names but={[objective.assignee]} />
            </select>
          </label>
          <label>
            Note, if there is something to say <textarea name="note" rows={2} />
          </label>
        </Action>
      )}
      {can("watch") && (
        <Action
          name="Watchers"
          title="Watchers of this objective"
          submit="Change"
          done="Changed."
          act={(form) =>
            change({ do: "watch", add: form.getAll("add").map(String), remove: form.getAll("remove").map(String) })
          }
        >
          {watchers.length > 0 && <Several legend="Remove" name="remove" of={watchers} />}
          <Several legend="Add" name="add" of={candidates(objective)} />
        </Action>
      )}
      {can("cancel") && (
        <Action
          name="Cancel objective"
          title="Cancel this objective"
          dismiss="Keep it"
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
  const { assignee: owner, created_at_ms: since } = objective;
  return (
    <section class="page">
      <header class="bar">
        <h1>{plain(objective.title)}</h1>
        <span class={`status ${objective.status}`}>{objective.status}</span>
        <a href={address("objectives")}>All objectives</a>
        <Share />
      </header>
      <div class="split">
        <div class="scroll sheet" tabIndex={0} role="region" aria-label="Content">
          <Actions objective={objective} />
          <dl class="facts">
            <dt>Outcome</dt>
            <dd>{plain(objective.outcome)}</dd>
            <dt>Assignee</dt>
            <dd>
              <a href={address("members", owner)}>{plain(owner)}</a>, by {plain(objective.originator)},{" "}
              <When ms={since} />
            </dd>
            <dt>Watchers</dt>
            <dd>{objective.watchers.length ? objective.watchers.map(plain).join(", ") : "nobody"}</dd>
            {objective.block_reason && (
              <>
                <dt>Blocked</dt>
                <dd class="unseen">
                  {plain(objective.block_reason)}
                  {blockedOnMe.value.has(objective.id) &&
                    ` (waiting for your answer, ${ago(objective.updated_at_ms, now.value)})`}
                </dd>
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
          {may("activity.read") && <Trace objective={objective} />}
        </div>
        <Conversation key={objective.id} place={`obj:${objective.id}`} title="Discussion" />
      </div>
    </section>
  );
}
