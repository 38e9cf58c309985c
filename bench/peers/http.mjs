// What the stand-ins for ac7 and backchannel share: an HTTP server of Node that answers JSON, and its streams of events.

import { createHash } from 'node:crypto';
import { createServer } from 'node:http';

export const hash = (token) => createHash('sha256').update(token).digest('hex');

export const bearer = (request) => (request.headers.authorization ?? '').replace(/^Bearer /i, '');

export function reply(response, status, value) {
  const text = JSON.stringify(value);
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  });
  response.end(text);
}

export function openStream(response, gone) {
  response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
  response.flushHeaders();
  response.on('close', gone);
}

export const event = (message) => `data: ${JSON.stringify(message)}\n\n`;

async function bodyOf(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return parts.length > 0 ? JSON.parse(Buffer.concat(parts)) : {};
}

// Serves on a free port and prints its address. `handle` gets the request, its body, the response and the URL.
export function serve(handle) {
  const server = createServer(async (request, response) => {
    try {
      const url = new URL(request.url, 'http://localhost');
      const body = request.method === 'POST' ? await bodyOf(request) : {};
      handle(request, body, response, url);
    } catch (error) {
      reply(response, 400, { error: error.message });
    }
  });
  server.keepAliveTimeout = 0;
  server.listen(0, '127.0.0.1', () => console.log(`127.0.0.1:${server.address().port}`));
}
