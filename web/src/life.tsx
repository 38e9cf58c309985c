// The life of a message as one bar: sent, offered, seen, acked, answered. The same wherever a message is shown.
import { useEffect } from "preact/hooks";
import { momentOf, timeOf } from "./clock.ts";
import type { Message, Receipt } from "./hub.ts";
import { keysOf } from "./inbox.ts";
import { FINAL, STAGES, type Point, answersTo, lifeOf, pointsOf, show, summed } from "./lives.ts";
import { oneLine, plain } from "./plain.ts";
import { besides } from "./route.ts";
import { attempt, byName, hub, visitor } from "./state.ts";
import { Wire } from "./wire.tsx";

/** A message that is only scrolled past is not asked for. */
const RUSH_MS = 200;
const [WIDTH, HEIGHT, GAP] = [12, 8, 2];

/** Ask for the receipts of a message while it is shown. */
function useLife(id: string, wait: number) {
  useEffect(() => {
    let hide: (() => void) | undefined;
    const timer = setTimeout(() => {
      hide = show(id);
    }, wait);
    return () => {
      clearTimeout(timer);
      hide?.();
    };
  }, [id]);
  return lifeOf(id).value;
}

/** The bar of a message, for all of its recipients. */
export function Life({ message: { id } }: { message: Pick<Message, "id"> }) {
  const known = useLife(id, RUSH_MS);
  if (!known || known.why) return <span class="life" />;
  const { of, counts, word, bad } = summed(known.receipts, answersTo(id));
  const title = STAGES.map((stage, index) => `${stage} ${counts[index]} of ${of}`).join(", ");
  return (
    <span class={bad ? "life bad" : "life"} title={of ? title : "It had no recipient."}>
      <Bar parts={counts.map((count) => (of ? count / of : 0))} />
      <span class="word">{word}</span>
    </span>
  );
}

/** Five parts, each filled as far as recipients came. */
const Bar = ({ parts }: { parts: readonly number[] }) => (
  <svg class="bar-of-life" width={parts.length * (WIDTH + GAP) - GAP} height={HEIGHT} aria-hidden="true">
    {parts.map((part, index) => (
      <g key={STAGES[index]}>
        <rect class="back" x={index * (WIDTH + GAP)} width={WIDTH} height={HEIGHT} rx="2" />
        {part > 0 && (
          <rect
            class={`part ${STAGES[index]}`}
            x={index * (WIDTH + GAP)}
            width={Math.max(2, WIDTH * part)}
            height={HEIGHT}
            rx="2"
          />
        )}
      </g>
    ))}
  </svg>
);

const SEEN = new Set(["seen", "acked"]);

/** Everything that is known of a message: for each recipient its stages, with times, ways and evidence. */
export function Receipts({ id, message }: { id: string; message: Message | null }) {
  const known = useLife(id, 0);
  if (!known) return <p>Asking…</p>;
  const { receipts, why, more } = known;
  if (why) return <p class="unseen">{why}</p>;
  if (!receipts.length) return <p>It had no recipient.</p>;
  const answered = answersTo(id);
  const unseen = receipts.filter((receipt) => !SEEN.has(receipt.state)).length;
  return (
    <>
      <p class={unseen ? "unseen" : ""}>
        {unseen ? `Not seen by ${unseen} of ${receipts.length}` : `Seen by all ${receipts.length}`}
      </p>
      {receipts.map((receipt) => (
        <section class="receipt" key={receipt.member} aria-label={`Receipt of ${plain(receipt.member)}`}>
          <h3>
            {plain(receipt.member)} <span class={`state ${receipt.state}`}>{receipt.state}</span>
            {receipt.held ? <span class="mark">{receipt.held.startsWith("slowed: ") ? "slowed" : "held"}</span> : null}
            {receipt.way && !SEEN.has(receipt.state) ? <span class="mark">by {receipt.way}</span> : null}
          </h3>
          <Stages points={pointsOf(receipt, answered)} />
          <ol>
            {receipt.steps.map((step, index) => (
              <li key={index}>
                <time title={momentOf(step.at_ms)}>{timeOf(step.at_ms)}</time>{" "}
                <span class={`state ${step.state}`}>{step.way || step.state}</span>{" "}
                {step.protocol ? <Wire name={step.protocol} /> : null} {plain(step.evidence ?? "")}
              </li>
            ))}
          </ol>
          {message && <Remedies message={message} receipt={receipt} />}
        </section>
      ))}
      {more && <p class="count">It has more recipients: tieline receipts lists all of them.</p>}
    </>
  );
}

/** The bar of one recipient, with the time of each stage. */
function Stages({ points }: { points: readonly Point[] }) {
  return (
    <dl class="stages">
      {points.map(({ stage, reached, at_ms, answer }) => (
        <div class={reached ? `stage ${stage}` : "stage not"} key={stage}>
          <dt>{stage}</dt>
          <dd>
            {answer ? (
              <a href={besides(answer)}>{timeOf(answer.sent_at_ms)}</a>
            ) : at_ms === null ? (
              <span title={reached ? "A later stage shows it." : undefined}>{reached ? "✓" : "–"}</span>
            ) : (
              timeOf(at_ms)
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

// Remedies of a person for a delivery that does not go on.

function Remedies({ message, receipt: { member, state } }: { message: Message; receipt: Receipt }) {
  const me = visitor.value?.member ?? "";
  const there = byName.value.has(member);
  const open = !FINAL.has(state);
  const button = (name: string, title: string, act: () => Promise<unknown>, done: string) => (
    <button type="button" title={title} onClick={() => void attempt(act, done)}>
      {name}
    </button>
  );
  const nudges = open && there && member !== me;
  const resends = there && member !== me && message.from === me && state !== "acked";
  if (!nudges && !resends && !(open && member === me)) return null;
  return (
    <p class="line remedies">
      {nudges &&
        button("Nudge", "Ask for it again, urgently", () => nudge(message, member), `${plain(member)} was nudged.`)}
      {resends &&
        button(
          "Resend",
          "Send it again; it takes the place of this one",
          () => resend(message, member),
          `It was sent to ${plain(member)} again.`,
        )}
      {open &&
        member === me &&
        button("Discard", "Nobody will handle it; its sender sees that", () => discard(message), "Discarded.")}
    </p>
  );
}

/** Ask a recipient to look at a message. */
const nudge = ({ id, offset, body, thread }: Message, member: string) =>
  hub.ask("send", {
    target: `@${member}`,
    body: `Please look at message ${offset}: “${oneLine(body, 200)}”`,
    priority: "urgent",
    reply_to: id,
    ...(thread ? { thread } : {}),
  });

/** Say the same to one recipient again. What waits for it of the earlier message is superseded. */
const resend = (message: Message, member: string) =>
  hub.ask("send", {
    target: `@${member}`,
    body: message.body,
    supersedes: message.id,
    ...(message.title ? { title: message.title } : {}),
    ...(message.data ? { data: message.data } : {}),
    ...(message.level ? { level: message.level } : {}),
    ...(message.priority ? { priority: message.priority } : {}),
    ...(message.kind ? { kind: message.kind } : {}),
    ...(message.topic ? { topic: message.topic } : {}),
    ...(message.scope ? { scope: message.scope } : {}),
    ...(message.thread ? { thread: message.thread } : {}),
    ...(message.reply_to ? { reply_to: message.reply_to } : {}),
    ...(message.refs ? { refs: message.refs } : {}),
    ...(message.attachments ? { attachments: message.attachments } : {}),
  });

async function discard({ offset }: Message): Promise<void> {
  const key = (await keysOf([offset])).get(offset);
  if (key === undefined || key === null) throw new Error("It does not wait for you any more.");
  await hub.ask("discard", { keys: [[key, key]], reason: "not to be handled" });
}
