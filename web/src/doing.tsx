// A member's state with how long it lasts, and the protocols of its sessions, wherever a page shows a member.
import { ago } from "./clock.ts";
import { now } from "./state.ts";
import { Wire } from "./wire.tsx";
import type { Work } from "./work.ts";

/** A state of a member, and for how long it lasts. */
export const Doing = ({ work: { state, since } }: { work: Work }) => (
  <span class="doing">
    <span class={`presence ${state}`}>{state}</span>{" "}
    {since === null ? state === "away" && <small>never here</small> : <small>for {ago(since, now.value)}</small>}
  </span>
);

/** Protocols of sessions, each once, with how many there are. */
export const Sessions = ({ of }: { of: readonly string[] }) => (
  <>
    {[...new Set(of)].toSorted().map((name) => {
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
