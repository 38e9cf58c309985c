// A list to choose from, by its values and their texts. A chosen value that is not in it is shown as it is.
import { plain } from "./plain.ts";

interface Props {
  label: string;
  value: string;
  choose(value: string): void;
  options: readonly (readonly [value: string, text: string])[];
}

export const Select = ({ label, value, choose, options }: Props) => (
  <select aria-label={label} value={value} onChange={(event) => choose(event.currentTarget.value)}>
    {options.map(([one, text]) => (
      <option key={one} value={one}>
        {plain(text)}
      </option>
    ))}
    {options.every(([one]) => one !== value) && <option value={value}>{plain(value)}</option>}
  </select>
);

/** Return options whose texts are their values. */
export const same = (values: readonly string[]) => values.map((value) => [value, value] as const);
