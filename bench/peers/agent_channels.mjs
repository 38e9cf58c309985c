// Stand-in for a channel of agent-channels: `agent_channels.mjs SOCKET`. Each message goes to every other client.
//
// It decodes, checks and encodes each message, as the library does. Written from the description of the wire in
// src/tieline/protocols/agent_channels/PROTOCOL.md.

import { createServer } from 'node:net';

const [path] = process.argv.slice(2);
const clients = new Set();

function isMessage(value) {
  const { msg, data = {} } = value;
  return typeof msg === 'string' && msg !== '' && typeof data === 'object' && data !== null && !Array.isArray(data);
}

function encode(message) {
  const payload = Buffer.from(JSON.stringify(message));
  const frame = Buffer.allocUnsafe(4 + payload.length);
  frame.writeUInt32BE(payload.length);
  payload.copy(frame, 4);
  return frame;
}

function forward(sender, message) {
  const frame = encode(message);
  for (const client of clients) if (client !== sender) client.write(frame);
}

createServer((client) => {
  let data = Buffer.alloc(0);
  clients.add(client);
  client.on('data', (chunk) => {
    data = data.length > 0 ? Buffer.concat([data, chunk]) : chunk;
    while (data.length >= 4) {
      const size = data.readUInt32BE();
      if (data.length < 4 + size) break;
      const message = JSON.parse(data.subarray(4, 4 + size));
      if (!isMessage(message)) return client.destroy();
      data = data.subarray(4 + size);
      forward(client, message);
    }
    return undefined;
  });
  client.on('close', () => clients.delete(client));
  client.on('error', () => client.destroy());
}).listen(path);
