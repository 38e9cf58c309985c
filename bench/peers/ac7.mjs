// Stand-in for ac7's server: its push and its stream as server-sent events, in memory. Nothing reaches a disk.
//
// A token `token-NAME` belongs to NAME. Written from the description of the wire in src/tieline/protocols/ac7/PROTOCOL.md.

import { randomUUID } from 'node:crypto';
import { bearer, event, hash, openStream, reply, serve } from './http.mjs';

const members = new Map();
const streams = new Map();
const history = [];

function memberOf(request) {
  const token = bearer(request);
  const key = hash(token);
  if (!members.has(key) && token.startsWith('token-')) members.set(key, token.slice('token-'.length));
  return members.get(key);
}

function publish(message, names) {
  const text = event(message);
  let live = 0;
  for (const name of names) {
    for (const stream of streams.get(name) ?? []) {
      stream.write(text);
      live += 1;
    }
  }
  history.push(message);
  return live;
}

function messageOf(from, { to = null, title = null, body, level = 'info', data = {}, attachments = [] }) {
  if (typeof body !== 'string' || body === '') throw new Error('body is required');
  return { id: randomUUID(), ts: Date.now(), to, from, title, body, level, data, attachments };
}

serve((request, body, response, url) => {
  const me = memberOf(request);
  if (me === undefined) return reply(response, 401, { error: 'unauthorized' });
  if (url.pathname === '/push') {
    const message = messageOf(me, body);
    const live = publish(message, new Set([message.to, me]));
    return reply(response, 200, { delivery: { live, targets: 1 }, message });
  }
  if (url.pathname !== '/subscribe') return reply(response, 404, { error: 'not found' });
  if (url.searchParams.get('name') !== me) return reply(response, 403, { error: 'not you' });
  const mine = streams.get(me) ?? new Set();
  streams.set(me, mine.add(response));
  openStream(response, () => mine.delete(response));
  return publish(messageOf('ac7', { to: me, title: 'ac7 session online', body: 'You are online.' }), [me]);
});
