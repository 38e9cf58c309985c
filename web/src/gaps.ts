// Gaps of a chart: a line must not cross a time without data.

/** Times in seconds and values, with a point without a value, or with the last one, where time without data begins. */
export function gapped(
  at: readonly number[],
  lines: readonly (readonly (number | null)[])[],
  step: number,
  held: boolean,
): (number | null)[][] {
  const times: number[] = [];
  const values: (number | null)[][] = lines.map(() => []);
  at.forEach((ms, index) => {
    const next = at[index + 1];
    times.push(ms / 1000);
    values.forEach((line, which) => line.push(lines[which]?.[index] ?? null));
    if (next === undefined || next - ms <= 1.5 * step) return;
    times.push((held ? next - step : ms + step) / 1000);
    values.forEach((line, which) => line.push(held ? (lines[which]?.[index] ?? null) : null));
  });
  return [times, ...values];
}
