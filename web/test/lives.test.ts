import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { Refused, type Receipt } from "../src/hub.ts";
import { answersTo, lifeOf, pointsOf, show, summed } from "../src/lives.ts";
import { hub, messages } from "../src/state.ts";
import { message } from "./samples.ts";

const receipt = (member: string, ...states: string[]): Receipt => ({
  member,
  state: states.at(-1) ?? "pending",
  steps: states.map((state, index) => ({ state, at_ms: index, protocol: "ac7" })),
});

const settled = () => new Promise((done) => setTimeout(done, 1));
let asked: string[] = [];
let refusal: Error | null = null;
let receipts: Receipt[] = [];

beforeEach(() => {
  asked = [];
  refusal = null;
  receipts = [receipt("ben", "pending")];
  hub.link.value = "live";
  hub.ask = (async (word: string, { id }: { id: string }) => {
    asked.push(`${word} ${id}`);
    if (refusal && word === "follow") throw refusal;
    return { id, receipts };
  }) as unknown as typeof hub.ask;
});

test("a delivery has a time for each stage that was noted, and later stages show the others", () => {
  const stages = pointsOf(receipt("ben", "pending", "acked"), []);
  assert.deepEqual(
    stages.map(({ stage, reached, at_ms }) => [stage, reached, at_ms]),
    [
      ["sent", true, 0],
      ["offered", true, null],
      ["seen", true, null],
      ["acked", true, 1],
      ["answered", false, null],
    ],
  );
});

test("a message of the recipient that answers is the last stage, and one of somebody else is not", () => {
  const [mine, other] = [
    message({ offset: 7, from: "ben", reply_to: "m1", sent_at_ms: 9 }),
    message({ offset: 8, from: "eve", reply_to: "m1" }),
  ];
  messages.value = [message({ offset: 1 }), mine, other];
  assert.deepEqual(answersTo("m1"), [mine, other]);
  const last = (member: string) => pointsOf(receipt(member, "pending"), answersTo("m1")).at(-1);
  assert.deepEqual([last("ben")?.reached, last("ben")?.at_ms, last("ben")?.answer], [true, 9, mine]);
  assert.equal(last("zoe")?.reached, false);
});

test("an escalation is no stage", () => {
  const one = receipt("ben", "pending");
  one.steps.push({ state: "pending", at_ms: 5, way: "hook" });
  assert.equal(pointsOf(one, [])[0]?.at_ms, 0);
});

test("the life of a message is said in a few words", () => {
  const words = (...all: Receipt[]) => summed(all, []).word;
  assert.equal(words(), "no recipient");
  assert.equal(words(receipt("ben", "pending")), "sent");
  assert.equal(words(receipt("ben", "pending", "seen")), "seen");
  assert.equal(words(receipt("ben", "pending", "acked"), receipt("eve", "pending", "offered")), "acked 1/2");
  assert.equal(words(receipt("ben", "pending", "offered", "expired")), "expired");
  assert.equal(
    words(receipt("ben", "pending", "acked"), receipt("eve", "pending", "dead"), receipt("zoe", "pending")),
    "acked 1/3, dead 1/3",
  );
  const held = { ...receipt("ben", "pending"), held: "held: hops_max = 3" };
  assert.deepEqual(summed([held], []).bad, true);
  assert.equal(words(held), "held");
  assert.deepEqual(summed([receipt("ben", "pending", "acked"), receipt("eve", "pending")], []).counts, [2, 1, 1, 1, 0]);
});

test("a message is asked for while it is shown, and again when it took a step", async () => {
  const hide = show("a");
  await settled();
  assert.deepEqual(asked, ["follow a"]);
  assert.equal(lifeOf("a").value?.receipts[0]?.state, "pending");
  receipts = [receipt("ben", "pending", "acked")];
  hub.progressed({ t: "progress", id: "a", member: "ben", state: "acked", at_ms: 1 });
  hub.progressed({ t: "progress", id: "a", member: "ben", state: "acked", at_ms: 1 });
  await new Promise((done) => setTimeout(done, 300));
  assert.deepEqual(asked, ["follow a", "follow a"], "many steps are one question");
  assert.equal(lifeOf("a").value?.receipts[0]?.state, "acked");
  hide();
  hub.progressed({ t: "progress", id: "a", member: "ben", state: "acked", at_ms: 2 });
  await new Promise((done) => setTimeout(done, 300));
  assert.equal(asked.length, 2, "nobody looks at it");
  show("a")();
  assert.equal(asked.length, 3, "it was not kept current, so it is asked for again");
});

test("when a session follows too much, the rest is read without following", async () => {
  refusal = new Refused("too_many_followed", "this session follows 1000 unsettled messages already");
  const hide = show("b");
  await settled();
  assert.deepEqual(asked, ["follow b", "read_receipts b"]);
  assert.equal(lifeOf("b").value?.why, "");
  hide();
});

test("what the hub does not show has the reason", async () => {
  refusal = new Refused("unknown_message", "no message 'c' was sent by or to me");
  const hide = show("c");
  await settled();
  assert.match(lifeOf("c").value?.why ?? "", /no message/);
  hide();
});

test("after a lost connection, what is shown is asked for again", async () => {
  const hide = show("d");
  await settled();
  hub.link.value = "lost";
  hub.link.value = "live";
  await settled();
  assert.deepEqual(asked, ["follow d", "follow d"]);
  hide();
});
