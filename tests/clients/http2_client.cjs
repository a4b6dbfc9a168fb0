// Node's own http2: two event streams, a publish and a resume on one session, then the end of a server that drains.
const http2 = require('node:http2');
const fs = require('node:fs');

const [url, token, certificate] = process.argv.slice(2);
const LIMIT_MS = 30_000;
setTimeout(() => { console.log('FAIL it took too long'); process.exit(1); }, LIMIT_MS).unref();

function check(truth, what) {
  if (!truth) { console.log(`FAIL ${what}`); process.exit(1); }
}

const session = http2.connect(url, { ca: fs.readFileSync(certificate) });
session.on('error', (fault) => check(false, `the session: ${fault}`));
const goaway = new Promise((resolve) => session.on('goaway', resolve));

function call(headers, body) {
  return new Promise((resolve) => {
    const request = session.request(headers);
    let status;
    let text = '';
    request.setEncoding('utf8');
    request.on('response', (head) => { status = head[':status']; });
    request.on('data', (part) => { text += part; });
    request.on('end', () => resolve({ status, text }));
    request.end(body);
  });
}

/** An event stream: its events, a wait for one of them, and its end. */
function watch(headers = {}) {
  const request = session.request({ ':path': '/v1/rooms/node2/sse', ...headers });
  const events = [];
  const waits = [];
  let text = '';
  request.setEncoding('utf8');
  request.on('data', (part) => {
    text += part;
    for (let at = text.indexOf('\n\n'); at >= 0; at = text.indexOf('\n\n')) {
      const data = text.slice(0, at).split('\n').find((line) => line.startsWith('data: '));
      text = text.slice(at + 2);
      if (data) events.push(JSON.parse(data.slice(6)));
    }
    waits.forEach((look) => look());
  });
  return {
    events,
    ended: new Promise((resolve) => request.on('close', () => resolve(request.rstCode))),
    until: (wanted) => new Promise((resolve) => {
      const look = () => { const found = events.find(wanted); if (found) resolve(found); };
      waits.push(look);
      look();
    }),
  };
}

async function publish(key) {
  const headers = { ':method': 'POST', ':path': '/v1/rooms/node2/comments', 'content-type': 'application/json', authorization: `Bearer ${token}` };
  const { status, text } = await call(headers, JSON.stringify({ client_msg_id: key, body: key }));
  check(status === 200, `publish: ${status} ${text}`);
  return JSON.parse(text).event_id;
}

(async () => {
  const [one, two] = [watch(), watch()];
  await Promise.all([one, two].map((stream) => stream.until((e) => e.type === 'hello')));
  const ids = [await publish('a'), await publish('b'), await publish('c')];
  await Promise.all([one, two].map((stream) => stream.until((e) => e.event_id === ids[2])));
  const resumed = watch({ 'last-event-id': String(ids[0]) });
  await resumed.until((e) => e.event_id === ids[2]);
  check(resumed.events[0].resumed === true, 'it resumed');
  check(!resumed.events.some((e) => e.event_id === ids[0]), 'nothing twice');
  check((await call({ ':path': '/v1/rooms/node2/stream' })).status === 426, 'a WebSocket is not for HTTP/2');
  console.log('drain');
  for (const stream of [one, two, resumed]) {
    const close = await stream.until((e) => e.type === 'close');
    check(close.code === 4112, `the drain closes with ${close.code}`);
    check((await stream.ended) === 0, 'each stream has an end, not a reset');
  }
  check((await goaway) === 0, 'the session ends without a fault');
  console.log('http2: three streams and a publisher on one session, resumed, drained');
  process.exit(0);
})();
