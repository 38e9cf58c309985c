import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import type { Channel } from "../src/hub.ts";
import { type Utterance, say, useDraft, useNames } from "../src/draft.ts";
import { channels, hub, members, notice } from "../src/state.ts";
import { used } from "./hook.ts";
import { member, message } from "./samples.ts";

let sent: Record<string, unknown>[] = [];
let recipients = 1;
let accept: () => void = () => undefined;
let wait: Promise<void> | null = null;

beforeEach(() => {
  sent = [];
  recipients = 1;
  wait = null;
  notice.value = "";
  hub.ask = (async (_: string, fields: Record<string, unknown>) => {
    sent.push(fields);
    await wait;
    if (fields["target"] === "@nobody") throw new Error("there is no member 'nobody'");
    return { recipients };
  }) as unknown as typeof hub.ask;
  members.value = [member("ada"), member("alan"), member("ben")];
  channels.value = [{ name: "dev" }] as unknown as Channel[];
});

const draft = (target: string, thread: string | null = null, reply = null as Utterance["reply"]) => {
  let done = 0;
  const hook = used(() => useDraft({ target, thread, reply, done: () => void done++ }));
  return { hook, done: () => done };
};

test("what is written is sent once, and what is written meanwhile stays", async () => {
  const { hook, done } = draft("@ada");
  hook.act((now) => now.setText("hello "));
  wait = new Promise((accepted) => {
    accept = accepted;
  });
  const sending = hook.now().send();
  await hook.now().send();
  hook.act((now) => now.setText("hello and more"));
  accept();
  await hook.settle(sending);
  assert.deepEqual(sent, [{ target: "@ada", body: "hello" }]);
  assert.equal(hook.now().text, "hello and more");
  assert.equal(done(), 1);
});

test("what the hub refuses stays, and says why", async () => {
  const { hook, done } = draft("@nobody");
  hook.act((now) => now.setText("hello"));
  await hook.settle(hook.now().send());
  assert.equal(hook.now().text, "hello");
  assert.equal(notice.value, "there is no member 'nobody'");
  assert.equal(done(), 0);
});

test("an empty text is not sent", async () => {
  const { hook } = draft("@ada");
  hook.act((now) => now.setText("  \n"));
  await hook.settle(hook.now().send());
  assert.deepEqual(sent, []);
});

test("an urgent message is urgent once", async () => {
  const { hook } = draft("@ada");
  hook.act((now) => {
    now.setText("now");
    now.setUrgent(true);
  });
  await hook.settle(hook.now().send());
  assert.deepEqual(sent, [{ target: "@ada", body: "now", priority: "urgent" }]);
  assert.equal(hook.now().urgent, false);
});

test("a reply is in the thread of its message, and what is written in a thread stays in it", async () => {
  const said = { body: "yes", urgent: false, files: [] };
  const asked = message({ id: "q", thread: "build" });
  await say("@ada", { ...said, reply: asked, thread: null });
  await say("@ada", { ...said, reply: null, thread: "other" });
  await say("@ada", { ...said, reply: message({ id: "q" }), thread: null });
  assert.deepEqual(sent, [
    { target: "@ada", body: "yes", reply_to: "q", thread: "build" },
    { target: "@ada", body: "yes", thread: "other" },
    { target: "@ada", body: "yes", reply_to: "q" },
  ]);
});

test("who reaches nobody is told, and no file goes to a channel that is not there", async () => {
  recipients = 0;
  const said = { body: "yes", urgent: false, files: [], reply: null, thread: null };
  await say("#dev", said);
  assert.equal(notice.value, "Accepted, but nobody is there to receive it.");
  await assert.rejects(say("#nowhere", { ...said, files: [{ path: "/me/f" }] }), /Nobody is reached at #nowhere/);
});

test("the last word is completed by the names that begin like it", () => {
  let text = "for @A";
  const hook = used(() => useNames(text, (now) => (text = now)));
  assert.deepEqual(hook.now().near, ["@ada", "@alan"]);
  assert.equal(hook.now().chosen, "@ada");
  hook.act((now) => now.move(-1));
  assert.equal(hook.now().chosen, "@alan", "before the first is the last");
  hook.act((now) => now.move(1));
  assert.equal(hook.now().chosen, "@ada");
  hook.act((now) => now.complete("@ada"));
  assert.equal(text, "for @ada ");
  assert.deepEqual(hook.now().near, []);
  for (const [words, names] of [
    ["#d", ["#dev"]],
    ["mail a@b", []],
    ["@ada", []],
    ["", []],
  ] as const) {
    text = words;
    hook.act(() => undefined);
    assert.deepEqual(hook.now().near, names, words);
  }
});
