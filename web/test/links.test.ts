import assert from "node:assert/strict";
import { test } from "node:test";
import type { ComponentChild, VNode } from "preact";
import { type Report, links } from "../src/links.tsx";

const spend = (by: string, name: string, fields = {}) => ({
  by,
  name,
  title: null,
  members: ["bob", "eve"],
  ...fields,
});
const failure = (kind: string, member: string) => ({ kind, cause: "too late", member });
const report = {
  spend: [
    spend("objective", "o-1", { title: "Ship it" }),
    spend("objective", ""),
    spend("member", "bob", { members: [] }),
    spend("model", "m-1"),
    spend("scope", "host/api"),
    spend("thread", "build"),
    spend("thread", ""),
  ],
  failures: [failure("expired", "bob"), failure("expired", "bob"), failure("dead", "eve"), failure("expired", "")],
} as unknown as Report;

/** Return the text of a cell, with the address after the text of each link. */
function text(cell: ComponentChild): string {
  if (Array.isArray(cell)) return cell.map(text).join("");
  if (typeof cell === "string" || typeof cell === "number") return String(cell);
  if (cell === null || typeof cell !== "object") return "";
  const { href, children } = (cell as VNode<{ href?: string; children?: ComponentChild }>).props;
  return text(children) + (href ? `<${href}>` : "");
}

const cells = links(report, (page, of) => `${page}/${of}`);

test("a row of spend leads to its subject, and to the members who spent most", () => {
  assert.deepEqual(
    report.spend.map((one) => [text(cells.spent(one)), text(cells.members(one.members))]),
    [
      ["Ship it<objectives/o-1>", "bob<members/bob>, eve<members/eve>"],
      ["(none)", "bob<members/bob>, eve<members/eve>"],
      ["bob<members/bob>", ""],
      ["m-1", "bob<members/bob>, eve<members/eve>"],
      ["host/api", "bob<members/bob>, eve<members/eve>"],
      ["build<talk/thread:build>", "bob<members/bob>, eve<members/eve>"],
      ["(none)", "bob<members/bob>, eve<members/eve>"],
    ],
  );
});

test("a change leads to what it is about", () => {
  const both = "bob<members/bob>, eve<members/eve>";
  for (const [what, name, expected] of [
    ["messages", "", ""],
    ["messages", "bob → eve", "bob<members/bob> → eve<members/eve>"],
    ["p50_ms until acked", "bob (ac7)", "bob<members/bob> (ac7)"],
    ["p50_ms of first answers", "bob", "bob<members/bob>"],
    ["cost_usd of the objective", "Ship it", "Ship it<objectives/o-1>"],
    ["cost_usd of the objective", "(none)", `(none) (${both})`],
    ["cost_usd of the objective", "Of the week before", "Of the week before"],
    ["cost_usd of the member", "gone", "gone<members/gone>"],
    ["cost_usd of the model", "m-1", `m-1 (${both})`],
    ["cost_usd of the scope", "host/api", `host/api (${both})`],
    ["cost_usd of the thread", "build", "build<talk/thread:build>"],
    ["cost_usd of the thread", "of the week before", "of the week before<talk/thread:of the week before>"],
    ["cost_usd of the thread", "(none)", `(none) (${both})`],
    ["failures: expired", "too late", "too late (bob<members/bob>)"],
    ["failures: call", "overloaded", "overloaded"],
  ] as const)
    assert.equal(text(cells.change({ what, name, before: 1, now: 2 })), expected, `${what} ${name}`);
});

test("a chain leads to its objectives, and to the member at its end", () => {
  assert.equal(text(cells.chain(["o-1", "@bob"])), "o-1<objectives/o-1> → @bob<members/bob>");
});

test("a report without a console has texts only, and shows hidden signs", () => {
  const bare = links(report, () => null);
  assert.equal(text(bare.members(["a\u202eb", "c"])), "a\\u202eb, c");
});
