import assert from "node:assert/strict";
import { beforeEach, mock, test } from "node:test";
import { Hub, Refused } from "../src/hub.ts";

/** The other end of a connection. */
class FakeSocket {
  static all: FakeSocket[] = [];
  readonly sent: { t: string; n?: number }[] = [];
  onopen: () => void = () => undefined;
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: (() => void) | null = null;
  readonly address: string;

  constructor(address: URL) {
    this.address = address.href;
    FakeSocket.all.push(this);
  }

  send(text: string): void {
    this.sent.push(...(JSON.parse(text) as { t: string; n?: number }[]));
  }

  close(): void {
    this.onclose?.();
  }

  says(...frames: unknown[]): void {
    this.onmessage?.({ data: JSON.stringify(frames) });
  }
}

const last = () => FakeSocket.all.at(-1) as FakeSocket;

function live(): Hub {
  const hub = new Hub();
  hub.open();
  last().onopen();
  last().says({ t: "welcome" });
  return hub;
}

beforeEach(() => {
  Object.assign(globalThis, { WebSocket: FakeSocket });
  FakeSocket.all = [];
  mock.timers.reset();
  mock.timers.enable({ apis: ["setTimeout"] });
});

test("it greets, and is live when it is welcome", () => {
  const hub = live();
  assert.equal(last().address, "ws://hub.test:7117/api/stream");
  assert.deepEqual(last().sent, [{ t: "hello", v: 1 }]);
  assert.equal(hub.link.value, "live");
});

test("each answer goes to its question, in any order", async () => {
  const hub = live();
  const [one, other] = [hub.ask("members", {}), hub.ask("channels", {})];
  last().says({ t: "channel_list", n: 2, channels: [] }, { t: "roster", n: 1, members: [] });
  assert.equal((await one).t, "roster");
  assert.equal((await other).t, "channel_list");
});

test("a refusal is an error with its code and what was meant perhaps", async () => {
  const hub = live();
  const asked = hub.ask("members", {});
  last().says({ t: "refused", n: 1, code: "unknown_target", message: "Nobody is called bn.", near: ["ben"] });
  await assert.rejects(asked, (error) => {
    assert.ok(error instanceof Refused);
    assert.equal(error.code, "unknown_target");
    assert.equal(error.message, "Nobody is called bn. (did you mean ben?)");
    return true;
  });
});

test("nothing is asked of a hub that is not there", async () => {
  await assert.rejects(new Hub().ask("members", {}), /not reachable/);
});

test("only the newest view is told what was said", () => {
  const hub = live();
  const heard: number[] = [];
  hub.said = (messages) => heard.push(messages.length);
  void hub.ask("tail", { after: -1 });
  void hub.ask("tail", { after: 5 });
  last().says({ t: "said", n: 1, messages: [{}] }, { t: "said", n: 2, messages: [{}, {}] });
  assert.deepEqual(heard, [2]);
});

test("a lost connection fails what waits, and is made again", async () => {
  const hub = live();
  const asked = hub.ask("members", {});
  last().close();
  await assert.rejects(asked, /was lost/);
  assert.equal(hub.link.value, "lost");
  mock.timers.tick(375);
  assert.equal(FakeSocket.all.length, 2);
});

test("it waits longer with each failure, and briefly again after a welcome", () => {
  mock.method(Math, "random", () => 0);
  const hub = live();
  const pauses = [250, 500, 1000, 2000, 4000, 8000, 8000];
  for (const pause of pauses) {
    const before = FakeSocket.all.length;
    last().close();
    mock.timers.tick(pause - 1);
    assert.equal(FakeSocket.all.length, before, `not before ${pause} ms`);
    mock.timers.tick(1);
    assert.equal(FakeSocket.all.length, before + 1, `after ${pause} ms`);
  }
  last().says({ t: "welcome" });
  last().close();
  mock.timers.tick(250);
  assert.equal(FakeSocket.all.length, pauses.length + 2);
  assert.equal(hub.link.value, "lost");
});

test("a connection that is given up is not waited for", () => {
  const hub = live();
  const silent = last();
  hub.again();
  assert.equal(hub.link.value, "lost");
  silent.says({ t: "welcome" });
  assert.equal(hub.link.value, "lost");
  mock.timers.tick(12_000);
  assert.equal(FakeSocket.all.length, 2);
});

test("who is let in no more stays out", () => {
  const hub = live();
  last().says({ t: "refused", code: "unauthorized", message: "Who are you?" });
  last().close();
  mock.timers.tick(60_000);
  assert.equal(hub.link.value, "out");
  assert.equal(FakeSocket.all.length, 1);
});
