import assert from "node:assert/strict";
import { test } from "node:test";
import { readExchange, tokensOf } from "../src/exchange.ts";

const call = (response: unknown, more: object = {}) => readExchange({ entry: { response }, ...more });

test("a model call has its model, tokens, time, and the tools with what they were given", () => {
  const content = [
    { type: "text", text: "I look." },
    { type: "tool_use", name: "read", input: { path: "a" } },
    { type: "tool_use" },
  ];
  const usage = { inputTokens: 7, outputTokens: 2 };
  const exchange = call({ model: "m", messages: [{ content }], usage }, { duration: 5 });
  assert.deepEqual(exchange, {
    model: "m",
    tools: [
      { name: "read", given: '{"path":"a"}' },
      { name: "a tool", given: "" },
    ],
    input: 7,
    output: 2,
    duration: 5,
  });
  assert.equal(tokensOf([exchange, call({})]), 9);
});

test("whatever a program reports is read", () => {
  for (const event of [{}, { entry: 5 }, { entry: { response: null, request: "x" } }, { entry: { response: [] } }])
    assert.deepEqual(readExchange(event), { model: "a model", tools: [], input: null, output: null, duration: null });
  assert.deepEqual(call({ messages: { content: 3 }, usage: { inputTokens: "9" } }).input, null);
});

test("an event is read once", () => {
  const event = {};
  assert.equal(readExchange(event), readExchange(event));
});
