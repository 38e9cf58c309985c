// Stand-in for backchannel's relay: register, send, take and the stream of events, in memory. Nothing reaches a disk.
//
// Written from the description of the wire in src/tieline/protocols/backchannel/PROTOCOL.md.

import { randomBytes, randomUUID } from 'node:crypto';
import { bearer, event, hash, openStream, reply, serve } from './http.mjs';

const ROOM_TOKEN = 'room';
const agents = new Map();
const namesByToken = new Map();

function register(name, response) {
  const token = randomBytes(32).toString('hex');
  namesByToken.set(hash(token), name);
  agents.set(name, { unread: new Map(), streams: new Set() });
  reply(response, 200, { name, subscriptions: [], token });
}

function send(from, { to, body, priority = 'normal' }, response) {
  const agent = agents.get(to.replace(/^@/, ''));
  if (agent === undefined) return reply(response, 400, { error: `unknown agent "${to}"` });
  const message = { id: randomUUID(), from, to, body, priority, ts: new Date().toISOString() };
  agent.unread.set(message.id, message);
  const text = event(message);
  for (const stream of agent.streams) stream.write(text);
  return reply(response, 200, message);
}

function take(agent, { id }, response) {
  const message = agent.unread.get(id) ?? null;
  agent.unread.delete(id);
  reply(response, 200, { message });
}

function follow(agent, response) {
  openStream(response, () => agent.streams.delete(response));
  for (const message of agent.unread.values()) response.write(event(message));
  agent.streams.add(response);
}

serve((request, body, response, url) => {
  if (url.pathname === '/v1/register') {
    if (bearer(request) !== ROOM_TOKEN) return reply(response, 401, { error: 'unauthorized' });
    return register(body.name, response);
  }
  const me = namesByToken.get(hash(bearer(request)));
  if (me === undefined) return reply(response, 401, { error: 'unauthorized' });
  if (url.pathname === '/v1/send') return send(me, body, response);
  if (url.pathname === '/v1/take') return take(agents.get(me), body, response);
  if (url.pathname === `/v1/events/${me}`) return follow(agents.get(me), response);
  return reply(response, 404, { error: 'not found' });
});
