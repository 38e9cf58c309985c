// The life of a message as one bar: sent, offered, seen, acked, answered. The same wherever a message is shown.
import { useEffect } from "preact/hooks";
import { minuteOf, momentOf, timeOf } from "./clock.ts";
import type { Message } from "./hub.ts";
import { STAGES, type Point, answersTo, lifeOf, pointsOf, show, summed } from "./lives.ts";
import { plain } from "./plain.ts";
import { Remedies } from "./remedies.tsx";
import { besides } from "./route.ts";
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
          {message && <Remedies message={message} receipts={[receipt]} />}
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
              <a href={besides(answer)} title={momentOf(answer.sent_at_ms)}>
                {minuteOf(answer.sent_at_ms)}
              </a>
            ) : at_ms === null ? (
              <span title={reached ? "A later stage shows it." : undefined}>{reached ? "✓" : "–"}</span>
            ) : (
              <span title={momentOf(at_ms)}>{minuteOf(at_ms)}</span>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}
