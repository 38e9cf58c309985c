// Home: everything that needs the viewer, everybody who is here and what each does now, what is stuck, and today's cost.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ago } from "./clock.ts";
import { Doing, Sessions } from "./doing.tsx";
import { type Stuckness, STUCK_AFTER_MS, useDevices, useReaches, useSpent, useStuck } from "./facts.ts";
import { Figures } from "./figures.tsx";
import { FirstSteps, isEmpty } from "./first.tsx";
import { grouped } from "./grouped.ts";
import type { Member, Message, Pause, Reach, Stuck } from "./hub.ts";
import { oneLine, plain } from "./plain.ts";
import { nameOfHeld } from "./pause.tsx";
import { address } from "./route.ts";
import { Share } from "./share.tsx";
import { type Spent, costOf, totalOf } from "./spent.ts";
import { members, messages, now, objectives, pauses, visitor } from "./state.ts";
import { placeNamed, placeOf } from "./talk.ts";
import { blockedOnMe, waits } from "./waits.ts";
import { When } from "./when.tsx";
import { type Work, evidenceOf, openWork, workOf } from "./work.ts";

const TEXT_MAX = 160;
/** Rows of a list that are shown; the rest is counted. */
const ROWS_MAX = 30;
/** A member that is not connected is shown if it was here so lately. */
const LATELY_MS = 60 * 60_000;
const ORDER = ["blocked", "working", "idle", "away"] as const;

export function Home() {
  const devices = useDevices()[0];
  const stuck = useStuck();
  const spent = useSpent();
  const me = visitor.value?.member ?? "";
  const others = members.value.filter(({ name }) => name !== me);
  // The steps stay while the page is open, so that a person sees the last mark.
  const empty = members.value.length > 0 && isEmpty(members.value, messages.value, me);
  const [first, setFirst] = useState(empty);
  useEffect(() => {
    if (empty) setFirst(true);
  }, [empty]);
  const calls = needs(devices);
  return (
    <section class="page">
      <header class="bar">
        <h1>Home</h1>
        <span class="count summary">{summary(calls.length, others)}</span>
        <Share />
      </header>
      <div class="scroll home" tabIndex={0} role="region" aria-label="Content">
        {(first || empty) && <FirstSteps />}
        <div class="column">
          <Part id="needs" title="Needs you" count={calls.length}>
            {calls.length === 0 ? <p class="none">Nothing needs you now.</p> : <Rows rows={calls} />}
          </Part>
          {others.length > 0 && <Here others={others} />}
        </div>
        <div class="column">
          <Troubles stuck={stuck} />
          {spent && <Today spent={spent} />}
        </div>
      </div>
    </section>
  );
}

function summary(count: number, others: readonly Member[]): string {
  const here = others.filter(({ sessions }) => sessions.length).length;
  const asks = count === 1 ? "1 thing needs you" : count ? `${count} things need you` : "nothing needs you";
  return others.length === 0
    ? asks
    : `${asks}, ${here} of ${others.length} ${others.length === 1 ? "member" : "members"} here`;
}

function Part(props: { id: string; title: string; count?: number; children: ComponentChildren }) {
  return (
    <section class={`part ${props.id}`} aria-labelledby={props.id}>
      <h2 id={props.id}>
        {props.title} {!!props.count && <span class="badge">{props.count}</span>}
      </h2>
      {props.children}
    </section>
  );
}

interface Row {
  key: string;
  href: string;
  kind: string;
  who: string;
  text: string;
  more: ComponentChildren;
}

const Rows = ({ rows }: { rows: readonly Row[] }) => (
  <>
    <ul class="items">
      {rows.slice(0, ROWS_MAX).map(({ key, href, kind, who, text, more }) => (
        <li key={key}>
          <a class="item" href={href}>
            <span class={`mark ${kind}`}>{kind}</span>
            <span class="words">
              <b>{plain(who)}</b> {text}
            </span>
            <small>{more}</small>
          </a>
        </li>
      ))}
    </ul>
    {rows.length > ROWS_MAX && <p class="none">and {rows.length - ROWS_MAX} more</p>}
  </>
);

/** Everything that waits for the viewer, the oldest of each kind first. */
function needs(devices: ReturnType<typeof useDevices>[0]): readonly Row[] {
  return [
    ...[...blockedOnMe.value.values()].map((one) => ({
      key: one.id,
      href: address("objectives", one.id),
      kind: "blocked",
      who: one.assignee,
      text: `${plain(one.title)}${one.block_reason ? `: ${oneLine(one.block_reason, TEXT_MAX)}` : ""}`,
      more: <>blocked for {ago(one.updated_at_ms, now.value)}</>,
    })),
    ...[...waits.value].flatMap(([name, { asked }]) => (asked ? [question(name, asked)] : [])),
    ...devices.map((device) => ({
      key: device.user_code,
      href: address("devices", device.user_code),
      kind: "device",
      who: device.user_code,
      text: `${plain(device.label) || "a device"}${device.source ? ` from ${plain(device.source)}` : ""}`,
      more: <>waits for your approval, {ago(device.created_at_ms, now.value)}</>,
    })),
    ...pauses.value.filter((pause) => !pause.allowed).map(heldRow),
  ];
}

const question = (name: string, asked: Message): Row => ({
  key: `question ${name}`,
  href: address("talk", `@${name}`, asked),
  kind: "question",
  who: name,
  text: oneLine(asked.title || asked.body, TEXT_MAX),
  more: <>waiting for your answer, {ago(asked.sent_at_ms, now.value)}</>,
});

function heldRow(pause: Pause): Row {
  const place = placeNamed(pause.thread, visitor.value?.member ?? "");
  const count = pause.held ?? 0;
  return {
    key: `held ${pause.thread}`,
    href: address("talk", place),
    kind: "held",
    who: nameOfHeld(pause),
    text: pause.by ? `paused by ${plain(pause.by)}` : "agents answered each other too often",
    more: <>{count === 1 ? "1 message waits" : `${count || "no"} messages wait`}</>,
  };
}

function Here({ others }: { others: readonly Member[] }) {
  const work = openWork(objectives.value);
  const rows = others
    .map((member) => ({ member, work: workOf(member, work.get(member.name)) }))
    .filter(({ member, work: { state, on } }) => state !== "away" || on || isLate(member))
    .toSorted((one, other) => ORDER.indexOf(one.work.state) - ORDER.indexOf(other.work.state));
  const shown = rows.slice(0, ROWS_MAX);
  const reaches = useReaches(shown.map(({ member }) => member.name));
  const left = others.length - shown.length;
  return (
    <Part id="here" title="Who is here">
      <ul class="agents">
        {shown.map(({ member, work: doing }) => (
          <Agent key={member.name} member={member} work={doing} reach={reaches.get(member.name)} />
        ))}
      </ul>
      {left > 0 && (
        <p class="none">
          <a href={address("members")}>
            {left} {shown.length ? "more " : ""}
            {left === 1 ? "member" : "members"}
          </a>
          {shown.length ? "" : ", nobody is here now"}
        </p>
      )}
    </Part>
  );
}

const counted = (count: number, word: string): string => `${count} ${word}${count === 1 ? "" : "s"}`;

const isLate = (member: Member): boolean => now.value - (member.last_seen_ms ?? 0) < LATELY_MS;

function Agent({ member, work, reach }: { member: Member; work: Work; reach: Reach | undefined }) {
  const evidence = evidenceOf(member);
  const legs = reach?.legs ?? [];
  return (
    <li>
      <a class="who" href={address("members", member.name)}>
        {plain(member.name)}
      </a>
      <Doing work={work} />
      <span class="on">
        {work.on ? <a href={address("objectives", work.on.id)}>{plain(work.on.title)}</a> : plain(member.title ?? "")}
      </span>
      <span class="by">
        <Sessions of={member.sessions} />
        {member.sessions.length === 0 && member.backlog > 0 && (
          <small>{counted(member.backlog, "message")} waiting</small>
        )}
      </span>
      <small class="last">
        {legs.length > 0 && <span>reached by {legs.map(({ way }) => way).join(", then ")}</span>}
        {evidence && member.evidence && (
          <span>
            {oneLine(evidence, TEXT_MAX)}, <When ms={member.evidence.at_ms} />
          </span>
        )}
      </small>
    </li>
  );
}

/** Return the address of a stuck message: its conversation, with the message beside it. */
export function addressOf(stuck: Stuck): string {
  const place = placeOf({ ...stuck, body: stuck.text, protocol: "" }, visitor.value?.member ?? "");
  return address("talk", place, stuck);
}

/** One row for each member that has not seen something, with its oldest message. */
function unseenRows(unseen: Stuckness["unseen"]): readonly Row[] {
  return [...grouped(unseen, ({ member }) => member)].map(([name, [oldest, ...others]]) => ({
    key: `unseen ${name}`,
    href: oldest ? addressOf(oldest) : "",
    kind: "not seen",
    who: name,
    text: oldest ? `has not seen “${oneLine(oldest.text, TEXT_MAX)}” from ${plain(oldest.from)}` : "",
    more: (
      <>
        {oldest ? `for ${ago(oldest.sent_at_ms, now.value)}` : ""}
        {others.length ? `, and ${others.length} more` : ""}
      </>
    ),
  }));
}

/** Return the reason why messages to a member are held, as far as the viewer may know it. */
function heldBy(name: string): string {
  const held = pauses.value.filter(({ thread, allowed }) => !allowed && thread.split("+").includes(`@${name}`));
  const [pause] = held;
  if (!pause || held.some(({ by }) => by !== pause.by)) return "held by the loop rule or a pause";
  return pause.by ? `paused by ${plain(pause.by)}` : "held by the loop rule";
}

function Troubles({ stuck: { unseen, dead } }: { stuck: Stuckness }) {
  const rows: readonly Row[] = [
    ...unseenRows(unseen),
    ...members.value
      .filter(({ held }) => held)
      .map(({ name, held }) => ({
        key: `held ${name}`,
        href: address("members", name),
        kind: "held",
        who: name,
        text: `does not get ${counted(held ?? 0, "message")} yet`,
        more: heldBy(name),
      })),
    ...dead.map((one) => ({
      key: `dead ${one.id} ${one.member}`,
      href: addressOf(one),
      kind: "dead",
      who: one.member,
      text: `never gets “${oneLine(one.text, TEXT_MAX)}” from ${plain(one.from)}: ${plain(one.evidence ?? "").replaceAll("_", " ")}`,
      more: <When ms={one.at_ms ?? one.sent_at_ms} />,
    })),
  ];
  return (
    <Part id="stuck" title="Stuck" count={rows.length}>
      {rows.length ? (
        <Rows rows={rows} />
      ) : (
        <p class="none">Everything that was said {ago(0, STUCK_AFTER_MS)} ago or earlier was seen. Nothing is held.</p>
      )}
    </Part>
  );
}

function Today({ spent }: { spent: readonly Spent[] }) {
  const total = totalOf(spent);
  const rows = [...grouped(spent, ({ member }) => member)]
    .map(([name, of]) => ({ name, total: totalOf(of) }))
    .toSorted((one, other) => other.total.cost - one.total.cost || other.total.tokens - one.total.tokens);
  return (
    <Part id="today" title="Today">
      <Figures of={total} />
      {rows.length === 0 && <p class="none">No model call was captured today.</p>}
      <ul class="items">
        {rows.slice(0, ROWS_MAX).map(({ name, total: of }) => (
          <li key={name}>
            <a class="item" href={address("members", name)}>
              <b class="name">{plain(name)}</b>
              <small>{of.tokens.toLocaleString()} tokens</small>
              <span class="num">{costOf(of)}</span>
            </a>
          </li>
        ))}
      </ul>
      {total.unpriced > 0 && (
        <p class="none">
          {total.unpriced} {total.unpriced === 1 ? "call has" : "calls have"} a model without a known price.
        </p>
      )}
    </Part>
  );
}
