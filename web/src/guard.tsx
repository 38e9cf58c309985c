// A part that cannot be drawn shows a sentence in its place. All other parts stay.
import type { ComponentChildren } from "preact";
import { useErrorBoundary } from "preact/hooks";

interface Props {
  children: ComponentChildren;
  /** The sentence in its place. */
  instead: string;
  /** True if the console is not at fault, because the data came from elsewhere. */
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
