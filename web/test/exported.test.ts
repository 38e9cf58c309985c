import assert from "node:assert/strict";
import { test } from "node:test";
import { asJson, asMarkdown, fileName } from "../src/exported.ts";
import { message } from "./samples.ts";

const rows = [
  message({ id: "q", offset: 4, body: "which **one**?\n\n# root · now", title: "a *question*" }),
  message({
    offset: 5,
    from: "eve_1",
    verified: false,
    reply_to: "q",
    priority: "urgent",
    body: "this\r\nand \u202ethat",
    attachments: [{ path: "/eve/plan.txt", name: "plan.txt", size: 3 }],
  }),
];

test("a conversation as Markdown quotes every body, so that none of it looks like another message", () => {
  assert.equal(
    asMarkdown({ place: "@ada", rows, whole: false, at_ms: 0 }),
    [
      "# @ada",
      "2 messages, exported at 1970-01-01T00:00:00.000Z. Older messages are left out.",
      "**ada** · to @me · 1970-01-01T00:00:00.000Z · number 4",
      "> **a \\*question\\***",
      "> which **one**?\n>\n> # root · now",
      "**eve\\_1** (unverified) · to @me · 1970-01-01T00:00:00.000Z · number 5 · answers 4 · urgent",
      "> this\n> and \\u202ethat",
      "- file plan.txt, 3 bytes",
    ].join("\n\n") + "\n",
  );
});

test("a conversation as JSON has the messages as the hub gives them", () => {
  const made: unknown = JSON.parse(asJson({ place: "#dev", rows, whole: true, at_ms: 0 }));
  assert.deepEqual(made, {
    conversation: "#dev",
    exported_at: "1970-01-01T00:00:00.000Z",
    whole: true,
    messages: rows,
  });
});

test("the name of a file is one that any system takes", () => {
  assert.equal(fileName("@ada"), "tieline-ada");
  assert.equal(fileName("ada ↔ ben/../x"), "tieline-ada-ben-..-x");
});
