import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import type { Channel } from "../src/hub.ts";
import { channels, objectives, visitor } from "../src/state.ts";
import { ago } from "../src/clock.ts";
import {
  conversationsAt,
  GENERAL,
  happening,
  hasPart,
  nameOf,
  placeNamed,
  placeOf,
  targetOf,
  threadOf,
  threadPlace,
} from "../src/talk.ts";
import { message, objective, visitor as viewer } from "./samples.ts";

beforeEach(() => {
  visitor.value = viewer("me");
  channels.value = [
    { name: "dev", subscribers: ["me"] },
    { name: "ops", subscribers: ["ada"] },
  ] as unknown as Channel[];
  objectives.value = [objective({ id: "o1", title: "Ship it", watchers: ["me"] }), objective({ id: "o2" })];
});

test("a direct message is in the conversation with the other one", () => {
  assert.equal(placeOf(message({ from: "me", target: "@ada" }), "me"), "@ada");
  assert.equal(placeOf(message({ from: "ada", target: "@me" }), "me"), "@ada");
});

test("an objective has its title, and one that is not loaded its short id", () => {
  assert.equal(nameOf("obj:o1"), "Ship it");
  assert.equal(nameOf("obj:obj-m9x2k1aa-7"), "obj:7");
});

test("what two others say to each other is one conversation in both directions", () => {
  const there = placeOf(message({ from: "ada", target: "@ben" }), "me");
  assert.equal(there, "ada ↔ ben");
  assert.equal(placeOf(message({ from: "ben", target: "@ada" }), "me"), there);
  assert.equal(targetOf(there), null);
});

test("the same message is elsewhere for another viewer", () => {
  const said = message({ from: "ada", target: "@me" });
  assert.equal(placeOf(said, "me"), "@ada");
  assert.equal(placeOf(said, "ada"), "@me");
});

test("what is said to everybody is in the general channel, by both of its names", () => {
  assert.equal(placeOf(message({ target: "*" }), "me"), GENERAL);
  assert.deepEqual(conversationsAt(GENERAL, "me"), ["*", GENERAL]);
});

test("the hub's name of a conversation is made of its members", () => {
  assert.deepEqual(conversationsAt("@ada", "me"), ["@ada+@me"]);
  assert.deepEqual(conversationsAt("ada ↔ ben", "me"), ["@ada+@ben"]);
  assert.deepEqual(conversationsAt("#dev", "me"), ["#dev"]);
});

test("a thread is a place, and nobody writes to it: its messages are at other places too", () => {
  assert.equal(threadPlace("build"), "thread:build");
  assert.equal(threadOf("thread:build"), "build");
  assert.equal(threadOf("#dev"), null);
  assert.equal(targetOf("thread:build"), null);
  assert.equal(nameOf("thread:build"), "Thread build");
});

test("files are for those who talk at a place", () => {
  for (const place of [GENERAL, "#dev", "@ada", "obj:o1"]) assert.ok(hasPart(place), place);
  for (const place of ["#ops", "obj:o2", "obj:unknown", "ada ↔ ben"]) assert.ok(!hasPart(place), place);
  visitor.value = viewer("me", ["members.manage"]);
  assert.ok(hasPart("ada ↔ ben"));
});

test("an objective's conversation has its title, if it is known", () => {
  assert.equal(nameOf("obj:o1"), "Ship it");
  assert.equal(nameOf("obj:gone"), "obj:gone");
  assert.equal(nameOf("#dev"), "#dev");
});

test("what happened to an objective is one line, and only the hub's events say so", () => {
  const data = { event: { kind: "watcher_added", name: "eve\u202e", toAssignee: 7 } };
  assert.equal(happening(message({ kind: "event", target: "obj:o1", data })), "objective watcher added: eve\\u202e");
  assert.equal(happening(message({ kind: "chat", target: "obj:o1", data })), null);
  const redacted = { event: "redacted", by: "operator", reason: "a password", row: 7 };
  assert.equal(
    happening(message({ body: "redacted by operator: a password\u202e", data: redacted })),
    "redacted by operator: a password\\u202e",
  );
  assert.equal(happening(message({ kind: "event", target: "#dev", data })), null);
  assert.equal(happening(message({ kind: "event", target: "obj:o1", data: { event: null } })), null);
});

test("a time that passed is told in one unit", () => {
  const [second, minute, hour] = [1000, 60_000, 3_600_000];
  assert.equal(ago(0, 59 * second), "59 s");
  assert.equal(ago(0, 60 * second), "1 min");
  assert.equal(ago(0, 59 * minute), "59 min");
  assert.equal(ago(0, 47 * hour), "47 h");
  assert.equal(ago(0, 48 * hour), "2 days");
  assert.equal(ago(5000, 0), "0 s", "clocks differ; nothing is told of the future");
});

test("a conversation that the hub names has a place", () => {
  assert.equal(placeNamed("*", "me"), GENERAL);
  assert.equal(placeNamed("#ops", "me"), "#ops");
  assert.equal(placeNamed("obj:o-1", "me"), "obj:o-1");
  assert.equal(placeNamed("@bob+@me", "me"), "@bob");
  assert.equal(placeNamed("@bob+@alice", "me"), "alice ↔ bob");
  assert.equal(placeNamed("thread:build", "me"), "thread:build");
});
