// The page of one member: what it does now, its timeline, its tokens and cost, a message to it, and its administration.
import { useState } from "preact/hooks";
import { type Doings, mayWatch, useActivity } from "./activity.ts";
import { Administration, Facts } from "./administration.tsx";
import { Compose } from "./compose.tsx";
import { Doing } from "./doing.tsx";
import { type Tool, readExchange, tokensOf } from "./exchange.ts";
import { useSpent } from "./facts.ts";
import { Figures } from "./figures.tsx";
import type { Activity, Member, Message } from "./hub.ts";
import { beginning, oneLine, plain } from "./plain.ts";
import { address } from "./route.ts";
import { Share } from "./share.tsx";
import { useSaid } from "./said.ts";
import { type Spent, costOf, totalOf } from "./spent.ts";
import { attempt, members, objectives, tell, visitor } from "./state.ts";
import { happening, nameOf, placeOf } from "./talk.ts";
import { type Item, type Kind, callsSince, completeFrom, timelineOf } from "./timeline.ts";
import { OneExchange } from "./trace.tsx";
import { When } from "./when.tsx";
import { Wire } from "./wire.tsx";
import { type Work, openWork, workOf } from "./work.ts";

const TEXT_MAX = 240;
/** Items that are drawn; older ones are drawn when they are asked for. */
const STEP = 100;
const CHOICES: readonly [Kind | "", string][] = [
  ["", "Everything"],
  ["message", "Messages"],
  ["call", "Model calls"],
  ["tool", "Tool calls"],
  ["objective", "Objectives"],
];

export function OneMember({ member }: { member: Member }) {
  const { name } = member;
  const own = name === visitor.value?.member;
  const doings = useActivity(name);
  const spent = useSpent(doings.rows[0]?.offset)?.filter((one) => one.member === name) ?? null;
  const work = workOf(member, openWork(objectives.value).get(name));
  return (
    <section class="page">
      <header class="bar">
        <h1>{plain(name)}</h1>
        <a href={address("members")}>All members</a>
        {!own && <a href={address("talk", `@${name}`)}>Conversation</a>}
        <Share />
      </header>
      <div class="scroll home" tabIndex={0} role="region" aria-label="Content">
        <div class="column">
          <Now member={member} work={work} rows={doings.rows} />
          <Timeline name={name} doings={doings} />
        </div>
        <div class="column">
          {!own && <Write to={name} />}
          {spent && <Spending spent={spent} />}
          <section class="part about" aria-label={name}>
            <h2>About</h2>
            <div class="sheet">
              <Facts member={member} />
              <Administration member={member} />
            </div>
          </section>
        </div>
      </div>
    </section>
  );
}

/** The current turn: what the member works on, and what it did since it began. */
function Now({ member, work, rows }: { member: Member; work: Work; rows: readonly Activity[] }) {
  const began = work.state === "working" ? work.since : null;
  const [last] = callsSince(rows, 0);
  return (
    <section class="part" aria-labelledby="now">
      <h2 id="now">Now</h2>
      <div class="none">
        <Doing work={work} />{" "}
        {work.on && (
          <>
            on <a href={address("objectives", work.on.id)}>{plain(work.on.title)}</a>
            {work.on.block_reason ? `: ${oneLine(work.on.block_reason, TEXT_MAX)}` : ""}
          </>
        )}
        {began !== null && mayWatch(member.name) && <Turn calls={callsSince(rows, began)} />}
        {began === null && last && (
          <p class="turn-now">
            Last model call <When ms={last.ts_ms} />
          </p>
        )}
      </div>
    </section>
  );
}

/** The model calls of a turn that goes on, the newest first. */
function Turn({ calls }: { calls: readonly Activity[] }) {
  const exchanges = calls.map(({ event }) => readExchange(event));
  const tools = exchanges.flatMap((one) => one.tools.toReversed());
  const [last] = calls;
  return (
    <>
      <p class="turn-now">
        In this turn: {calls.length} model {calls.length === 1 ? "call" : "calls"},{" "}
        {tokensOf(exchanges).toLocaleString()} tokens, {tools.length} tool {tools.length === 1 ? "call" : "calls"}
        {last && (
          <>
            {" "}
            (the last <When ms={last.ts_ms} />)
          </>
        )}
      </p>
      {tools[0] && (
        <p class="turn-now">
          Last tool: <Called tool={tools[0]} />
        </p>
      )}
    </>
  );
}

const Called = ({ tool: { name, given } }: { tool: Tool }) => (
  <>
    <b>{plain(name)}</b> <code>{beginning(given, TEXT_MAX)}</code>
  </>
);

function Spending({ spent }: { spent: readonly Spent[] }) {
  const total = totalOf(spent);
  return (
    <section class="part" aria-labelledby="today">
      <h2 id="today">Today</h2>
      <Figures of={total} />
      {spent.length > 0 && (
        <ul class="items">
          {spent.map((one) => (
            <li key={one.model} class="item">
              <b class="name">{plain(one.model) || "a model"}</b>
              <small>
                {one.input_tokens.toLocaleString()} in, {one.output_tokens.toLocaleString()} out
              </small>
              <span class="num">{costOf(totalOf([one]))}</span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Timeline({ name, doings }: { name: string; doings: Doings }) {
  const [kind, setKind] = useState<Kind | "">("");
  const [shown, setShown] = useState(STEP);
  const said = useSaid(name);
  const from = completeFrom(said.rows, said.whole, doings.rows, doings.whole);
  const items = timelineOf(name, said.rows, doings.rows, objectives.value).filter(
    (item) => item.at >= from && (!kind || item.kind === kind),
  );
  const more = items.length > shown || !said.whole || !doings.whole;
  const readBack = async () => {
    await Promise.all([doings.readOlder(), said.readOlder()]);
  };
  return (
    <section class="part timeline" aria-labelledby="timeline">
      <h2 id="timeline">Timeline</h2>
      <p class="line" role="group" aria-label="Show">
        {CHOICES.map(([choice, title]) => (
          <button type="button" key={choice} aria-pressed={kind === choice} onClick={() => setKind(choice)}>
            {title}
          </button>
        ))}
      </p>
      {items.length === 0 && <p class="none">{nothing(kind, more)}</p>}
      <ol class="items" aria-live="off">
        {items.slice(0, shown).map((item) => (
          <li key={item.key} class={item.kind}>
            <Line item={item} name={name} />
          </li>
        ))}
      </ol>
      {more && (
        <p class="line">
          <button
            type="button"
            onClick={() => {
              setShown(shown + STEP);
              if (items.length < shown + STEP) void attempt(readBack);
            }}
          >
            Older
          </button>
        </p>
      )}
    </section>
  );
}

function nothing(kind: Kind | "", more: boolean): string {
  if (kind) return "Nothing of this kind yet.";
  return more ? "Reading…" : "It has said and done nothing yet.";
}

function Line({ item, name }: { item: Item; name: string }) {
  if (item.message) return <Said message={item.message} name={name} />;
  const { row, tool } = item;
  if (tool)
    return (
      <p class="item">
        <When ms={item.at} />
        <span class="words">
          <Called tool={tool} />
        </span>
      </p>
    );
  if (!row) return null;
  if (item.kind === "call") return <OneExchange row={row} />;
  const objective = objectives.value.find(({ id }) => id === row.event["objectiveId"]);
  return (
    <p class="item">
      <When ms={row.ts_ms} />
      <span class="words">
        {plain(row.kind).replaceAll("_", " ")}{" "}
        {objective && <a href={address("objectives", objective.id)}>{plain(objective.title)}</a>}
      </span>
    </p>
  );
}

const recipient = (target: string): string => (target === "*" ? "everybody" : plain(nameOf(target)));

function Said({ message, name }: { message: Message; name: string }) {
  const place = placeOf(message, visitor.value?.member ?? "");
  const happened = happening(message);
  return (
    <a class="item" href={address("talk", place, message)}>
      <When ms={message.sent_at_ms} />
      <span class="words">
        {happened ? (
          <>
            <b>{plain(message.from)}</b> <i>{oneLine(happened, TEXT_MAX)}</i> ({plain(nameOf(message.target))})
          </>
        ) : (
          <>
            <b>{message.from === name ? `→ ${recipient(message.target)}` : `${plain(message.from)} →`}</b>{" "}
            {oneLine(message.title || message.body, TEXT_MAX)}
          </>
        )}
      </span>
      <Wire name={message.protocol} />
    </a>
  );
}

/** A message to the member. */
function Write({ to }: { to: string }) {
  const done = () => {
    const isHere = members.value.some(({ name, sessions }) => name === to && sessions.length > 0);
    tell(isHere ? "Sent." : `Sent. ${plain(to)} gets it when it is back.`);
  };
  return (
    <div class="part">
      <Compose target={`@${to}`} thread={null} reply={null} done={done} />
    </div>
  );
}
