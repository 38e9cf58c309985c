// @agent-relay/sdk on the lead of a test: commands in, answers and events out, one JSON object a line each.
//
// {"id", "agent", "new": config}           makes a client
// {"id", "agent", "call": name, "args"}    calls one of its methods, or reads a property; calls may overlap
//
// The answer has the same id, with `value` or `error`. What the client hears comes as `event`.

import { createInterface } from 'node:readline';
import { RelayClient } from '@agent-relay/sdk';

// Standard output is for answers and events; what the SDK prints goes with the errors.
console.log = console.error;

const clients = new Map();

function tell(fact) {
  process.stdout.write(`${JSON.stringify(fact)}\n`);
}

function make(agent, config) {
  const client = new RelayClient(config);
  client.onMessage = (from, payload, messageId, meta, originalTo) =>
    tell({ event: 'message', agent, from, payload, messageId, meta, originalTo });
  client.onChannelMessage = (from, channel, body, envelope) =>
    tell({ event: 'channel', agent, from, channel, body, payload: envelope.payload });
  client.onStateChange = (state) => tell({ event: 'state', agent, state });
  client.onAgentReady = (info) => tell({ event: 'ready', agent, info });
  client.onError = (error) => tell({ event: 'error', agent, error: error.message });
  clients.set(agent, client);
}

async function obey({ agent, call, args, new: config }) {
  if (config !== undefined) return make(agent, config);
  const client = clients.get(agent);
  return typeof client[call] === 'function' ? client[call](...args) : client[call];
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  obey(command).then(
    (value) => tell({ id: command.id, value: value ?? null }),
    (error) => tell({ id: command.id, error: error.message }),
  );
}

// The test is over. Timers of the SDK would keep the process for seconds.
for (const client of clients.values()) client.destroy();
process.exit(0);
