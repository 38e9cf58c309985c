// The official TypeScript clients of MCP on the lead of a test: commands in, answers and events out, one JSON object a
// line each.
//
// {"id", "connect": {library, url, token, options}}   connects; library is "sdk" (handshake era) or "client" (both eras)
// {"id", "call": name, "args"}                        calls a method of the client
//
// The answer has the same id, with `value` or `error`. Notifications of the server come as `event`.

import { createInterface } from 'node:readline';

// Standard output is for answers and events; what a library prints goes with the errors.
console.log = console.error;

let client;

function tell(fact) {
  process.stdout.write(`${JSON.stringify(fact)}\n`);
}

async function load(library) {
  if (library === 'client') return import('@modelcontextprotocol/client');
  const { Client } = await import('@modelcontextprotocol/sdk/client/index.js');
  const { StreamableHTTPClientTransport } = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
  return { Client, StreamableHTTPClientTransport };
}

async function connect({ library, url, token, options }) {
  const { Client, StreamableHTTPClientTransport } = await load(library);
  const requestInit = { headers: { Authorization: `Bearer ${token}` } };
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit });
  client = new Client({ name: 'test', version: '1' }, options);
  client.fallbackNotificationHandler = async (note) => tell({ event: note.method, params: note.params });
  await client.connect(transport);
  return { session: transport.sessionId ?? null, version: transport.protocolVersion ?? null };
}

async function obey({ connect: how, call, args }) {
  if (how !== undefined) return connect(how);
  const made = await client[call](...args);
  // A subscription has no form in JSON.
  return call === 'listen' ? null : made;
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  obey(command).then(
    (value) => tell({ id: command.id, value: value ?? null }),
    (error) => tell({ id: command.id, error: error.message }),
  );
}

process.exit(0);
