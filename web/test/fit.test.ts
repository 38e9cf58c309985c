import assert from "node:assert/strict";
import { test } from "node:test";
import { fitting } from "../src/fit.ts";

const choices = [
  { text: "Home", hint: "page" },
  { text: "Live", hint: "page" },
  { text: "#alarms", hint: "conversation" },
  { text: "Ship the parser", hint: "conversation" },
  { text: "@ada", hint: "conversation" },
  { text: "ada", hint: "member" },
  { text: "Ship the parser", hint: "objective" },
];
const texts = (asked: string) => fitting(choices, asked).map(({ text, hint }) => `${text} ${hint}`);

test("everything is there until something is typed, in the order of the list", () => {
  assert.equal(fitting(choices, " ").length, choices.length);
  assert.equal(texts("")[0], "Home page");
});

test("what begins with the word comes before what has it, and before what is only called so", () => {
  assert.deepEqual(texts("a").slice(0, 3), ["#alarms conversation", "@ada conversation", "ada member"]);
  assert.equal(texts("a").at(-1), "Live page");
  assert.deepEqual(texts("pa").slice(0, 2), ["Ship the parser conversation", "Ship the parser objective"]);
  assert.deepEqual(texts("@ada"), ["@ada conversation"]);
});

test("every word must fit the text or the hint", () => {
  assert.deepEqual(texts("ship objective"), ["Ship the parser objective"]);
  assert.deepEqual(texts("PAGE live"), ["Live page"]);
  assert.deepEqual(texts("nothing"), []);
});
