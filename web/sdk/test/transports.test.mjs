// The three transports over a network that is played: what they ask for, what they make of answers, and that they end once.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pollTransport, sseTransport, websocketTransport } from './built.mjs';

const opening = (more) => ({ base: 'https://s.example', roomId: 'match:1', cursor: 0, token: null, session: null, tab: 't1', attempted: { rung: 'x', attempt: 2, failure: 'timeout' }, ...more });

/** What a transport told. */
function hearing() {
  const told = { events: [], advanced: [], ended: [] };
  return { told, events: (list) => told.events.push(...list), advanced: (n) => told.advanced.push(n), ended: (how, why) => told.ended.push([how, why]) };
}

const settle = async () => { for (let n = 0; n < 40; n += 1) await new Promise((resolve) => { setImmediate(resolve); }); };

class Socket {
  static all = [];
  constructor(url, protocols) { Object.assign(this, { url, protocols, sent: [], readyState: 1, closed: false }); Socket.all.push(this); }
  send(text) { this.sent.push(JSON.parse(text)); }
  close() { this.closed = true; }
  say(...events) { this.onmessage?.({ data: JSON.stringify(events.length === 1 ? events[0] : events) }); }
}
const websocket = (more) => {
  const on = hearing();
  const stream = websocketTransport(Socket).open(opening(more), on);
  return { on, stream, socket: Socket.all.at(-1) };
};

test('websocket: a token is a subprotocol and the cursor a query; nobody says hello with both', () => {
  const ann = websocket({ token: 'a.b.c', cursor: 7 });
  assert.equal(ann.socket.url, 'wss://s.example/v1/rooms/match%3A1/stream?attempt=2&failure=timeout&last_event_id=7');
  assert.deepEqual(ann.socket.protocols, ['grandstand.v1', 'bearer.a.b.c']);
  ann.socket.onopen();
  assert.deepEqual(ann.socket.sent, []);
  const nobody = websocket({ cursor: 7, session: 's1' });
  assert.equal(nobody.socket.url, 'wss://s.example/v1/rooms/match%3A1/stream?attempt=2&failure=timeout&session=s1');
  nobody.socket.onopen();
  assert.deepEqual(nobody.socket.sent, [{ op: 'hello', last_event_id: 7 }]);
});

test('websocket: nothing is sent before the greeting, arrays are events in order, rubbish is nothing', () => {
  const { on, stream, socket } = websocket({});
  assert.equal(stream.send({ op: 'ping' }), false);
  socket.say({ type: 'hello' });
  assert.equal(stream.send({ op: 'ping' }), true);
  socket.say({ type: 'comment', event_id: 1 }, { type: 'comment', event_id: 2 });
  socket.onmessage({ data: 'not JSON' });
  socket.onmessage({ data: '[null, 7, "x"]' });
  assert.deepEqual(on.told.events.map((e) => e.event_id ?? e.type), ['hello', 1, 2]);
});

test('websocket: an error is heard, of a socket that was let go of too: where nobody does, the package `ws` throws it', () => {
  const { on, stream, socket } = websocket({});
  socket.onerror({ type: 'error' });
  assert.deepEqual(on.told.ended, [], 'its close follows');
  stream.abandon();
  assert.equal(typeof socket.onerror, 'function');
});

test('websocket: a close event is the end, whatever its socket does then', () => {
  const { on, socket } = websocket({});
  socket.say({ type: 'hello' });
  socket.say({ type: 'close', code: 4112, reason: 'drain', retry_after_ms: 500, spread_ms: 900 });
  socket.onclose?.({ code: 1006, reason: '' });
  assert.equal(on.told.ended.length, 1);
  assert.deepEqual([on.told.ended[0][0].code, on.told.ended[0][0].spread_ms, on.told.ended[0][1]], [4112, 900, 'closed']);
  const refused = websocket({});
  refused.socket.onclose({ code: 1006, reason: '' });
  assert.deepEqual(refused.on.told.ended, [[{ code: 1006, reason: '' }, 'refused']]);
});

test('websocket: one that was let go of is heard no more', () => {
  const { on, stream, socket } = websocket({});
  stream.abandon();
  socket.onmessage?.({ data: '{"type":"hello"}' });
  socket.onclose?.({ code: 1006 });
  assert.deepEqual([on.told.events, on.told.ended, socket.closed], [[], [], true]);
});

/** An answer of HTTP. `body`: JSON, text, or a list of pieces that are streamed. */
const answer = (status, body, headers = {}) => new Response(
  Array.isArray(body) ? new ReadableStream({ start(c) { for (const piece of body) c.enqueue(new TextEncoder().encode(piece)); c.close(); } })
    : body === null ? null : typeof body === 'string' ? body : JSON.stringify(body),
  { status, headers: { 'content-type': Array.isArray(body) ? 'text/event-stream' : typeof body === 'string' ? 'text/html' : 'application/json', ...headers } });

async function sse(given, more) {
  const asked = [];
  const on = hearing();
  const stream = sseTransport(async (url, init) => { asked.push([url, init]); return typeof given === 'function' ? given(init) : given; }).open(opening(more), on);
  await settle();
  return { asked, on, stream };
}

test('sse: the token and the cursor are headers, and characters are whole however they are cut', async () => {
  const bytes = new TextEncoder().encode('event: comment\nid: 3\ndata: {"type":"comment","event_id":3,"body":"😀"}\n\n');
  const body = new ReadableStream({ start(c) { for (const byte of bytes) c.enqueue(Uint8Array.of(byte)); c.close(); } });
  const { asked, on } = await sse(new Response(body, { headers: { 'content-type': 'text/event-stream' } }), { token: 'a.b.c', cursor: 2 });
  const [[url, { headers }]] = asked;
  assert.equal(url, 'https://s.example/v1/rooms/match%3A1/sse?attempt=2&failure=timeout');
  assert.deepEqual([headers.authorization, headers['last-event-id']], ['Bearer a.b.c', '2']);
  assert.deepEqual(on.told.events, [{ type: 'comment', event_id: 3, body: '😀' }]);
  assert.deepEqual(on.told.ended, [[{ code: 1006 }, 'refused']], 'it was never greeted');
});

test('sse: a close that is told is the end', async () => {
  const { on } = await sse(answer(200, ['data: {"type":"hello"}\n\n', 'retry: 500\ndata: {"type":"close","code":4129,"retry_after_ms":7}\n\n']));
  assert.deepEqual(on.told.ended.map(([how, why]) => [how.code, how.retry_after_ms, why]), [[4129, 7, 'closed']]);
});

test('refusals of the server are its codes; what a proxy or a portal says is a failure of the way', async () => {
  const problem = (status, code, more = {}) => answer(status, { type: 'about:blank', status, code, detail: 'why', ...more });
  for (const [given, code, after] of [
    [problem(403, 'not_allowed'), 4003], [problem(404, 'no_such_room'), 4004], [problem(451, 'blackout'), 4051], [problem(400, 'bad_cursor'), 4000],
    [problem(401, 'bad_token'), 4101], [problem(503, 'not_ready', { retry_after_ms: 900 }), 4153, 900], [problem(429, 'too_many'), 4129],
    [answer(503, { type: 'close', code: 4153, reason: 'not_ready', retry_after_ms: 5 }), 4153, 5],
    [answer(429, 'slow down', { 'retry-after': '3' }), 4129, 3_000], [answer(429, 'slow down'), 1006], [answer(403, '<h1>hotel</h1>'), 1006], [answer(200, '<h1>sign in</h1>'), 1006], [answer(502, ''), 1006],
    [problem(421, 'wrong_listener'), 1006],
  ]) {
    const { on } = await sse(given);
    assert.deepEqual(on.told.ended.map(([how]) => [how.code, how.retry_after_ms]), [[code, after]]);
  }
});

test('sse: one that was let go of is heard no more', async () => {
  let go;
  const { on, stream } = await sse(({ signal }) => new Promise((resolve, reject) => {
    go = () => resolve(answer(200, ['data: {"type":"hello"}\n\n']));
    signal.addEventListener('abort', () => reject(new Error('aborted')));
  }));
  stream.abandon();
  go();
  await settle();
  assert.deepEqual([on.told.events, on.told.ended], [[], []]);
});

test('poll: each request goes on where the last one ended, with the token of its moment', async () => {
  const asked = [];
  const on = hearing();
  let token = null;
  const answers = [
    answer(200, { events: [{ type: 'hello', cursor: 4 }], next_since: 4, next_timeout_ms: 25_000 }),
    answer(200, { events: [{ type: 'comment', event_id: 6 }], next_since: 9, next_timeout_ms: 25_000 }),
    answer(401, { type: 'close', code: 4101, reason: 'token_expired' }),
  ];
  pollTransport(async (url, init) => { asked.push([new URL(url).search, init.headers.authorization]); token = 'a.b.c'; return answers.shift(); }, () => token).open(opening({ session: 's1' }), on);
  await settle();
  assert.deepEqual(asked, [
    ['?timeout=1&tab=t1&attempt=2&failure=timeout&session=s1', undefined],
    ['?timeout=25&tab=t1&since=4', 'Bearer a.b.c'],
    ['?timeout=25&tab=t1&since=9', 'Bearer a.b.c'],
  ]);
  assert.deepEqual(on.told.advanced, [4, 9]);
  assert.deepEqual(on.told.ended.map(([how, why]) => [how.code, why]), [[4101, 'closed']]);
});

test('poll: what is no poll, or ended by a newer one, is a failure of the way', async () => {
  for (const given of [() => answer(200, '<h1>sign in</h1>'), () => answer(200, { hello: 1 }), () => answer(204, null), () => { throw new TypeError('fetch failed'); }]) {
    const on = hearing();
    pollTransport(async () => given(), () => null).open(opening(), on);
    await settle();
    assert.deepEqual(on.told.ended.map(([how]) => how.code), [1006]);
  }
});
