// A protocol by its name and a colour, so that neither has to do alone.
import { plain } from "./plain.ts";

export const Wire = ({ name }: { name: string }) => (
  <span class={`wire ${/^[a-z0-9-]+$/.test(name) ? name : "other"}`}>{plain(name)}</span>
);
