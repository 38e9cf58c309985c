// Node.js' own fetch and WebSocket on the lead of a test: commands in, answers and events out, one JSON object a line each.
//
// {"id", "ask": url, "token", "body"}   makes a request, POST if it has a body; the answer is {status, text}
// {"id", "stream": url, "token"}        opens a stream of server-sent events, whose data come as `event`
// {"id", "dial": url, "say": text}      opens a WebSocket and sends a text; what the other side sends comes as `event`
//
// The answer has the same id, with `value` or `error`.

import { createInterface } from 'node:readline';

function tell(fact) {
  process.stdout.write(`${JSON.stringify(fact)}\n`);
}

function request(token, body) {
  const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
  return body === undefined ? { headers } : { method: 'POST', headers, body: JSON.stringify(body) };
}

async function ask(url, token, body) {
  const answer = await fetch(url, request(token, body));
  return { status: answer.status, text: await answer.text() };
}

async function read(body) {
  let rest = '';
  for await (const piece of body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + piece).split('\n');
    rest = lines.pop();
    for (const line of lines) if (line.startsWith('data: ')) tell({ event: 'data', text: line.slice(6) });
  }
}

async function stream(url, token) {
  const answer = await fetch(url, request(token));
  read(answer.body).catch((error) => tell({ event: 'end', text: error.message }));
  return { status: answer.status };
}

function dial(url, text) {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url);
    socket.onmessage = ({ data }) => tell({ event: 'frame', text: data });
    // The event does not say why.
    socket.onerror = () => reject(new Error('no WebSocket'));
    socket.onopen = () => {
      socket.send(text);
      resolve(null);
    };
  });
}

async function obey({ ask: asked, stream: streamed, dial: dialled, token, body, say }) {
  if (asked !== undefined) return ask(asked, token, body);
  return streamed !== undefined ? stream(streamed, token) : dial(dialled, say);
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  obey(command).then(
    (value) => tell({ id: command.id, value }),
    (error) => tell({ id: command.id, error: error.cause?.code ?? error.message }),
  );
}

process.exit(0);
