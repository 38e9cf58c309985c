// Places at the side: their order, what is left out, and places that the hub does not have.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import type { Channel } from "../src/hub.ts";
import { groupsAt, unknownAt } from "../src/places.tsx";
import { channels, curtailed, members, messages, objectives, visitor } from "../src/state.ts";
import { member, message, objective, visitor as viewer } from "./samples.ts";

beforeEach(() => {
  visitor.value = viewer("me");
  members.value = [member("Ada"), member("ben"), member("me")];
  channels.value = [{ name: "dev", subscribers: [] }] as unknown as Channel[];
  objectives.value = [];
  messages.value = [];
  curtailed.value = false;
});

const group = (title: string, here = "") => groupsAt(here).find((one) => one.title === title);

test("the place where something was said last comes first", () => {
  messages.value = [message({ offset: 1, from: "Ada" }), message({ offset: 2, from: "ben" })];
  assert.deepEqual(group("Direct")?.found, ["@ben", "@Ada"]);
  messages.value = [...messages.value, message({ offset: 3, from: "me", target: "@Ada" })];
  assert.deepEqual(group("Direct")?.found, ["@Ada", "@ben"]);
});

test("objectives that ended are counted, and only the one that is looked at is listed", () => {
  objectives.value = [objective({ id: "open" }), objective({ id: "over", status: "done" })];
  assert.deepEqual(group("Objectives"), { title: "Objectives", found: ["obj:open"], hidden: 1 });
  assert.deepEqual(group("Objectives", "obj:over")?.found, ["obj:open", "obj:over"]);
});

test("a group without places is not there", () => {
  assert.deepEqual(
    groupsAt("").map((one) => one.title),
    ["Channels", "Direct"],
  );
});

test("a place that the hub does not have is named in a sentence", () => {
  objectives.value = [objective({ id: "o1" })];
  for (const place of ["@ada", "#dev", "#DEV", "#general", "obj:o1", "thread:x", "a ↔ b"])
    assert.equal(unknownAt(place), null, place);
  assert.equal(unknownAt("@zoe"), "No member is called “zoe”.");
  assert.equal(unknownAt("#zoe"), "There is no channel “zoe”.");
  assert.equal(unknownAt("obj:o2"), "There is no such objective that you may see.");
  assert.equal(unknownAt("zoe"), "There is no conversation “zoe”.");
});

test("nothing is unknown before the roster was read, or if older objectives were left out", () => {
  objectives.value = [objective({ id: "o1" })];
  curtailed.value = true;
  assert.equal(unknownAt("obj:o2"), null);
  members.value = [];
  assert.equal(unknownAt("@zoe"), null);
});
