// npm `ws` and `eventsource` against the real server: both follow a room, lose the server, and come back without a gap.
const { createRequire } = require('node:module');
const path = require('node:path');
const from = createRequire(path.join(process.env.NODE_PATH, 'x.js'));
const WebSocket = from('ws');
const { EventSource } = from('eventsource');
const readline = require('node:readline');

const [url, token] = process.argv.slice(2);
const LIMIT_MS = 30_000;
const answers = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();

function check(truth, what) {
  if (!truth) { console.log(`FAIL ${what}`); process.exit(1); }
}

async function publish(n) {
  const response = await fetch(`${url}/v1/rooms/node/comments`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify({ client_msg_id: `n${n}`, body: `line ${n}` }),
  });
  const body = await response.json();
  check(response.status === 200, `publish ${n}: ${response.status} ${JSON.stringify(body)}`);
  return body.event_id;
}

/** Resolves when `list` ends with `last`. */
function caughtUp(list, last, what) {
  return new Promise((resolve) => {
    const started = Date.now();
    const look = setInterval(() => {
      if (list.at(-1) === last) { clearInterval(look); resolve(); }
      check(Date.now() - started < LIMIT_MS, `${what} never saw ${last}: ${list}`);
    }, 10);
  });
}

(async () => {
  const ids = { ws: [], sse: [] };
  let cursor = 0;
  let socket;
  const connect = () => new Promise((resolve) => {
    socket = new WebSocket(`${url.replace('http', 'ws')}/v1/rooms/node/stream`, ['grandstand.v1', `bearer.${token}`],
      cursor ? { headers: { 'Last-Event-ID': String(cursor) } } : {});
    socket.on('message', (data) => {
      const events = [JSON.parse(data)].flat();
      for (const e of events) {
        if (e.type === 'hello') { cursor = e.cursor; resolve(e); }
        if (e.type === 'comment') { check(e.event_id > cursor, 'ids go backwards'); cursor = e.event_id; ids.ws.push(e.event_id); }
      }
    });
    socket.on('error', () => setTimeout(() => connect().then(resolve), 100));
  });
  await connect();
  const source = new EventSource(`${url}/v1/rooms/node/sse`);
  source.addEventListener('comment', (e) => ids.sse.push(JSON.parse(e.data).event_id));
  await new Promise((resolve) => source.addEventListener('hello', resolve, { once: true }));

  const published = [];
  for (let n = 0; n < 10; n += 1) published.push(await publish(n));
  await caughtUp(ids.ws, published.at(-1), 'ws');
  await caughtUp(ids.sse, published.at(-1), 'eventsource');

  const closed = new Promise((resolve) => socket.on('close', (code) => resolve(code)));
  console.log('restart');
  check((await closed) === 4112, 'the drain closes with 4112');
  await answers.next();
  const hello = await connect();
  check(hello.resumed === true, 'ws resumed');
  for (let n = 10; n < 20; n += 1) published.push(await publish(n));
  await caughtUp(ids.ws, published.at(-1), 'ws after the restart');
  await caughtUp(ids.sse, published.at(-1), 'eventsource after the restart');
  check(JSON.stringify(ids.ws) === JSON.stringify(published), 'ws saw each once, in order');
  check(JSON.stringify(ids.sse) === JSON.stringify(published), 'eventsource saw each once, in order');
  console.log('ws and eventsource: 20 comments over a restart, each once, in order');
  process.exit(0);
})();
