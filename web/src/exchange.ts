// A model call as an agent's program reports it. Anything may be missing or something else, because programs report
// what they like.

/** A tool that the model called. */
export interface Tool {
  name: string;
  /** Its input as JSON; empty where it was not captured. */
  given: string;
}

/** The parts of a model call that are shown. */
export interface Exchange {
  model: string;
  tools: readonly Tool[];
  /** Tokens, where they were captured. */
  input: number | null;
  output: number | null;
  duration: number | null;
}

const record = (value: unknown): Record<string, unknown> =>
  typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
const list = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const amount = (value: unknown): number | null => (typeof value === "number" ? value : null);

/** Cache, because a page reads its events again whenever one comes. */
const known = new WeakMap<object, Exchange>();

export function readExchange(event: Readonly<Record<string, unknown>>): Exchange {
  let exchange = known.get(event);
  if (!exchange) {
    exchange = read(event);
    known.set(event, exchange);
  }
  return exchange;
}

function read(event: Readonly<Record<string, unknown>>): Exchange {
  const entry = record(event["entry"]);
  const [request, response] = [record(entry["request"]), record(entry["response"])];
  const usage = record(response["usage"]);
  const blocks = list(response["messages"]).flatMap((said) => list(record(said)["content"]).map(record));
  return {
    model: text(response["model"]) || text(request["model"]) || "a model",
    tools: blocks
      .filter((block) => block["type"] === "tool_use")
      .map(({ name, input }) => ({
        name: text(name) || "a tool",
        given: input === undefined ? "" : JSON.stringify(input),
      })),
    input: amount(usage["inputTokens"]),
    output: amount(usage["outputTokens"]),
    duration: amount(event["duration"]),
  };
}

/** Return the tokens of model calls, in and out. */
export const tokensOf = (exchanges: readonly Exchange[]): number =>
  exchanges.reduce((sum, { input, output }) => sum + (input ?? 0) + (output ?? 0), 0);
