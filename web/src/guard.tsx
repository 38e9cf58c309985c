// What cannot be drawn says so in its place, and takes nothing else with it.
import type { ComponentChildren } from "preact";
import { useErrorBoundary } from "preact/hooks";

interface Props {
  children: ComponentChildren;
  /** What is said in its place. */
  instead: string;
  /** Whether it is no fault of the console: what it was to draw came from elsewhere. */
  expected?: boolean;
}

export function Guard({ children, instead, expected = false }: Props) {
  const [error] = useErrorBoundary((thrown: unknown) => {
    if (!expected) console.error(thrown);
  });
  if (error === undefined) return <>{children}</>;
  return (
    <div class="empty" role="alert">
      <p>{instead}</p>
    </div>
  );
}
