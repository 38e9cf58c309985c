// The client's side of `bench.relay_load`: pairs of clients of @agent-relay/sdk in one process.
//
// A command is one JSON object a line, and each is answered by one line:
// {"open": socket, "name", "pairs", "window", "body"}   connects the clients
// {"run": n}                                            sends n messages, and waits until all have arrived
// {"one": true}                                         sends one that blocks until its recipient answers

import { createInterface } from 'node:readline';
import { RelayClient } from '@agent-relay/sdk';

// Standard output is for answers.
console.log = console.error;

const senders = [];
let window = 0;
let body = '';
let finished = () => {};
let missing = 0;

function client(socketPath, agentName) {
  return new RelayClient({ socketPath, agentName, quiet: true, reconnect: false });
}

function fill(sender) {
  while (sender.left > 0 && sender.sent - sender.received < window) {
    sender.left -= 1;
    sender.sent += 1;
    if (!sender.client.sendMessage(sender.to, body)) throw new Error('not sent');
  }
}

function arrived(sender) {
  sender.received += 1;
  missing -= 1;
  if (missing === 0) finished();
  else if (sender.sent - sender.received <= window / 2) fill(sender);
}

async function open(command) {
  ({ window, body } = command);
  for (let index = 0; index < command.pairs; index += 1) {
    const to = `${command.name}-r${index}`;
    const recipient = client(command.open, to);
    const sender = { client: client(command.open, `${command.name}-s${index}`), to, sent: 0, received: 0, left: 0 };
    recipient.onMessage = (from, payload, messageId, meta) => {
      if (meta?.sync === undefined) arrived(sender);
      else recipient.sendAck({ ack_id: messageId, seq: 1, correlationId: meta.sync.correlationId, response: 'OK' });
    };
    await recipient.connect();
    await sender.client.connect();
    senders.push(sender);
  }
  return {};
}

async function run(count) {
  const all = new Promise((resolve) => { finished = resolve; });
  missing = count;
  for (const sender of senders) {
    sender.left = count / senders.length;
    fill(sender);
  }
  await all;
  return {};
}

async function one() {
  const [{ client: sender, to }] = senders;
  const started = performance.now();
  await sender.sendAndWait(to, body, { timeoutMs: 15000 });
  return { seconds: (performance.now() - started) / 1000 };
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  const answer = command.open ? await open(command) : command.one ? await one() : await run(command.run);
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
process.exit(0);
