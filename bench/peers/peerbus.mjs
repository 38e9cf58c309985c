// Stand-in for peerbus's broker: register, envelopes, deliveries and acknowledgements, in memory, over WebSockets.
//
// The broker is written in Go; this is Node with its WebSocket frames made by hand, and without the audit chain. Like the
// broker it checks tokens and no signatures. Written from the description of the wire in
// src/tieline/protocols/peerbus/PROTOCOL.md.

import { createHash } from 'node:crypto';
import { createServer } from 'node:net';

const [token] = process.argv.slice(2);
const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const peers = new Map();
const waiting = new Map();
const known = new Set();

function frame(text) {
  const payload = Buffer.from(text);
  const size = payload.length;
  const head = size < 126 ? Buffer.from([0x81, size]) : Buffer.from([0x81, 126, size >> 8, size & 255]);
  return Buffer.concat([head, payload]);
}

function deliver(message) {
  known.add(message.id);
  waiting.set(message.id, message);
  peers.get(message.to)?.write(frame(JSON.stringify({ type: 'deliver', delivery_key: message.id, envelope: message })));
}

function receive(socket, message) {
  if (message.type === 'register') {
    if (message.token !== token) return socket.destroy();
    peers.set(message.name, socket);
  }
  if (message.type === 'register' || message.type === 'peers') {
    return socket.write(frame(JSON.stringify({ type: 'peers', names: [...peers.keys()].sort() })));
  }
  if (message.type === 'ack') return waiting.delete(message.id);
  return known.has(message.id) ? undefined : deliver(message);
}

function open(socket, head) {
  const [, key] = head.match(/^sec-websocket-key: *(.*)\r$/im);
  const accept = createHash('sha1').update(key + GUID).digest('base64');
  const answer = `Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`;
  socket.write(`HTTP/1.1 101 Switching Protocols\r\n${answer}`);
}

// Takes one frame off the data; returns the rest, or undefined if the frame is not complete.
function next(socket, data) {
  if (data.length < 6) return undefined;
  let size = data[1] & 127;
  let start = 2;
  if (size === 126) [size, start] = [data.readUInt16BE(2), 4];
  if (data.length < start + 4 + size) return undefined;
  const mask = data.subarray(start, start + 4);
  const payload = data.subarray(start + 4, start + 4 + size);
  for (let index = 0; index < size; index += 1) payload[index] ^= mask[index & 3];
  receive(socket, JSON.parse(payload));
  return data.subarray(start + 4 + size);
}

const server = createServer((socket) => {
  let data = Buffer.alloc(0);
  let opened = false;
  socket.setNoDelay(true);
  socket.on('data', (chunk) => {
    data = data.length > 0 ? Buffer.concat([data, chunk]) : chunk;
    if (!opened) {
      const end = data.indexOf('\r\n\r\n');
      if (end < 0) return;
      open(socket, data.toString('latin1', 0, end + 2));
      opened = true;
      data = data.subarray(end + 4);
    }
    socket.cork();
    for (let rest = next(socket, data); rest !== undefined; rest = next(socket, data)) data = rest;
    process.nextTick(() => socket.uncork());
  });
  socket.on('error', () => socket.destroy());
});
server.listen(0, '127.0.0.1', () => console.log(`127.0.0.1:${server.address().port}`));
