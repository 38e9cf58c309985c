// A moment on the page: as people say it, with all of it in a tooltip.
import { momentOf, whenOf } from "./clock.ts";
import { now } from "./state.ts";

export const When = ({ ms }: { ms: number }) => (
  <time class="when" dateTime={new Date(ms).toISOString()} title={momentOf(ms)}>
    {whenOf(ms, now.value)}
  </time>
);
