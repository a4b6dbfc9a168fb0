// Pages, browsers and networks that do what nobody hopes for: each is a room that goes on, or says why it does not.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ENTRIES_MAX, Store } from './built.mjs';
import { Browser, Page, RUNGS, roomIn, world } from './world.mjs';

const tokenOf = (sub, n = 0) => `x.${btoa(JSON.stringify({ sub, name: sub.toUpperCase(), n })).replaceAll('=', '')}.x`;
const never = () => new Promise(() => {});
const ann = { id: 'ann', display: 'Ann', badges: [] };

// ---- the token

test('a token callback that never answers does not keep the room from being watched', async () => {
  const w = world();
  w.server.comment('before');
  const reasons = [];
  const room = roomIn(w.server, w.draw, { token: (reason) => { reasons.push(reason); return reasons.length < 3 ? never() : tokenOf('ann'); } }).start();
  await w.clock.run(30_000);
  assert.deepEqual([room.status.state, room.store.entries.length], ['live', 1]);
  await w.clock.run(60_000);
  assert.equal(room.user?.id, 'ann', 'it was asked again, and the reader is who it is');
  room.stop();
});

test('a renewal that never answers is asked for again', async () => {
  const w = world();
  let asked = 0;
  const token = (reason) => (reason === 'expiring' && (asked += 1) < 3 ? never() : tokenOf('ann', asked));
  const room = roomIn(w.server, w.draw, { rungs: ['websocket'], token }).start();
  await w.clock.run(1_000);
  const [stream] = w.server.streams;
  const sent = [];
  const send = stream.send.bind(stream);
  stream.send = (op) => { sent.push(op); return send(op); };
  stream.hand([{ type: 'token_expiring', in_ms: 120_000 }]);
  await w.clock.run(60_000);
  assert.deepEqual(sent.filter((op) => op.op === 'auth'), [{ op: 'auth', token: tokenOf('ann', 3) }]);
  room.stop();
});

test('a token is not asked for twice at a time, however often its end is told', async () => {
  const w = world();
  let waiting = 0;
  const most = [];
  const token = async (reason) => {
    most.push((waiting += 1));
    if (reason === 'expiring') await new Promise((resolve) => { w.clock.timer(resolve, 5_000); });
    waiting -= 1;
    return tokenOf('ann', reason === 'expiring' ? 2 : 1);
  };
  const room = roomIn(w.server, w.draw, { rungs: ['poll'], token }).start();
  await w.clock.run(1_000);
  for (let n = 0; n < 8; n += 1) {
    for (const stream of w.server.streams) stream.hand([{ type: 'token_expiring', in_ms: 60_000 }]);
    await w.clock.run(500);
  }
  await w.clock.run(10_000);
  assert.deepEqual([most, room.status.state], [[1, 1], 'live']);
  room.stop();
});

test('a tab that has its stream from another one renews its token when a snapshot is refused with it', async () => {
  const w = world();
  const browser = new Browser();
  let asked = 0;
  const open = () => roomIn(w.server, w.draw, {
    token: (reason) => tokenOf('ann', reason === 'expiring' ? (asked += 1) : 0), env: { page: new Page(), locks: browser.locks, channel: browser.channel },
  }).start();
  const first = open();
  await w.clock.run(2_000);
  const second = open();
  await w.clock.run(2_000);
  assert.equal(second.status.way, 'tab');
  const { fetch } = w.server;
  w.server.fetch = async (url, init) => (init?.headers?.authorization === `Bearer ${tokenOf('ann', 0)}` ? { ok: false, status: 401, headers: new Headers(), json: async () => ({}) } : fetch.call(w.server, url, init));
  for (let n = 0; n < 3; n += 1) w.server.comment(`in a gap ${n}`);
  for (const stream of w.server.streams) stream.hand([{ type: 'snapshot_required', room_id: 'r', reason: 'too_old', cursor: w.server.head, pseq: w.server.pseq, snapshot_url: '' }]);
  await w.clock.run(80_000);
  assert.deepEqual(second.store.entries.map((e) => e.body), ['in a gap 0', 'in a gap 1', 'in a gap 2']);
  assert.ok(asked > 0);
  first.stop();
  second.stop();
});

test('a reader whose token could not be had at first is not nobody for long', async () => {
  const w = world();
  let asked = 0;
  const token = async () => { asked += 1; if (asked <= 3) throw new Error('away'); return tokenOf('ann'); };
  const room = roomIn(w.server, w.draw, { token }).start();
  await w.clock.run(1_000);
  assert.deepEqual([room.status.state, room.user], ['live', null]);
  await w.clock.run(40_000);
  assert.deepEqual([room.user?.id, room.status.state], ['ann', 'live']);
  room.stop();
});

test('a token that comes late does not take the place of a newer one, and nothing waits for it', async () => {
  const w = world();
  const late = [];
  let who = 'old';
  const token = (reason) => (reason === 'expired' ? new Promise((give) => { late.push(give); }) : tokenOf(who));
  const room = roomIn(w.server, w.draw, { rungs: ['websocket'], token }).start();
  await w.clock.run(1_000);
  for (const stream of [...w.server.streams]) stream.end({ code: 4101, retry_after_ms: 0, spread_ms: 0 });
  await w.clock.run(3_000);
  assert.equal(late.length, 1);
  who = 'new';
  void room.renewToken();
  await w.clock.run(1_000);
  assert.deepEqual([room.status.state, room.user.id], ['live', 'new']);
  late[0](tokenOf('old'));
  await w.clock.run(1_000);
  assert.equal(room.user.id, 'new');
  room.stop();
});

test('a room that is stopped while a token is waited for begins anew', async () => {
  const w = world();
  let asked = 0;
  const token = (reason) => { asked += 1; return reason === 'expired' ? never() : tokenOf('ann', asked); };
  const room = roomIn(w.server, w.draw, { rungs: ['websocket'], token }).start();
  await w.clock.run(1_000);
  for (const stream of [...w.server.streams]) stream.end({ code: 4101, retry_after_ms: 0, spread_ms: 0 });
  await w.clock.run(3_000);
  room.stop();
  room.start();
  await w.clock.run(2_000);
  assert.equal(room.status.state, 'live');
  room.stop();
});

// ---- the browser

test('where a browser denies locks or channels each tab has its own stream', async () => {
  const denied = () => Promise.reject(new DOMException('denied', 'SecurityError'));
  const browser = new Browser();
  const worlds = {
    'locks that are refused': { locks: { request: denied }, channel: browser.channel },
    'locks that throw': { locks: { request() { throw new Error('denied'); } }, channel: browser.channel },
    'channels that throw': { locks: browser.locks, channel() { throw new Error('denied'); } },
  };
  for (const [what, env] of Object.entries(worlds)) {
    const w = world();
    const room = roomIn(w.server, w.draw, { env: { page: new Page(), ...env } }).start();
    await w.clock.run(2_000);
    assert.deepEqual([room.status.state, room.status.way], ['live', 'websocket'], what);
    room.stop();
  }
});

test('a storage that throws costs the resume of a reload and nothing else', async () => {
  const w = world();
  const storage = { getItem() { throw new Error('denied'); }, setItem() { throw new Error('full'); } };
  const room = roomIn(w.server, w.draw, { storage }).start();
  w.server.comment('one');
  await w.clock.run(5_000);
  assert.equal(room.status.state, 'live');
  room.stop();
});

test('what a storage gives for a cursor is one, or is nothing', async () => {
  for (const kept of ['', 'x', '-5', '1.5', '1e9', '9007199254740993', '99999999999999999999', ' 7', 'null', '0x10', '4503599627370496']) {
    for (const api of ['good', 'refused']) {
      const w = world();
      w.server.comment('before');
      w.server.api = api;
      const room = roomIn(w.server, w.draw, { storage: { getItem: () => kept, setItem() {} } }).start();
      await w.clock.run(10_000);
      w.server.api = 'good';
      w.server.comment('after');
      await w.clock.run(40_000);
      assert.deepEqual([room.status.state, room.cursor, room.store.entries.map((e) => e.body)], ['live', w.server.head, ['before', 'after']], `${kept} ${api}`);
      room.stop();
    }
  }
});

test('a tab that comes while the one that leads was sent away, or is in trouble, is told so', async () => {
  for (const [road, state] of [[{ code: 4003, reason: 'not_allowed' }, 'stopped'], ['refused', 'trouble']]) {
    const w = world();
    const browser = new Browser();
    const open = () => roomIn(w.server, w.draw, { env: { page: new Page(), locks: browser.locks, channel: browser.channel } }).start();
    for (const way of RUNGS) w.server.roads[way] = road;
    const first = open();
    await w.clock.run(200_000);
    assert.equal(first.status.state, state);
    const attempts = w.server.attempts.length;
    const second = open();
    await w.clock.run(5_000);
    assert.equal(second.status.state, state, 'the second tab');
    assert.ok(w.server.attempts.length <= attempts + 1);
    first.stop();
    second.stop();
  }
});

// ---- the server's waits

test('a wait that no timer can hold is waited for all the same', async () => {
  const w = world();
  let longest = 0;
  let timers = 0;
  // As browsers have them: what is longer than 24.8 days fires at once.
  const timer = (fire, ms) => {
    timers += 1;
    longest = Math.max(longest, ms);
    return timers < 1_000 ? w.clock.timer(fire, ms > 2 ** 31 - 1 ? 1 : ms) : null;
  };
  w.server.roads.websocket = { code: 4129, retry_after_ms: 31_536_000_000 };
  const room = roomIn(w.server, w.draw, { rungs: ['websocket'], env: { timer } }).start();
  await w.clock.run(5_000);
  assert.ok(timers < 50 && longest < 2 ** 31, `${timers} timers, up to ${longest} ms`);
  assert.equal(room.status.state, 'waiting');
  room.stop();
});

test('who comes back to the page does not come back to the server before its time', async () => {
  const w = world();
  const page = new Page();
  w.server.roads.websocket = { code: 4129, retry_after_ms: 120_000, spread_ms: 0 };
  const room = roomIn(w.server, w.draw, { env: { page } }).start();
  await w.clock.run(2_000);
  assert.equal(w.server.attempts.length, 1);
  w.server.roads.websocket = 'good';
  for (let n = 0; n < 5; n += 1) {
    page.hide();
    page.show();
    page.cut();
    page.join();
    await w.clock.run(10_000);
  }
  assert.equal(w.server.attempts.length, 1);
  assert.equal(room.status.state, 'waiting');
  await w.clock.run(80_000);
  assert.equal(room.status.state, 'live');
  room.stop();
});

test('a snapshot that stops in the middle is asked for again', async () => {
  const w = world();
  w.server.comment('before');
  const { fetch } = w.server;
  let stuck = 2;
  w.server.fetch = async (url, init) => {
    const answer = await fetch.call(w.server, url, init);
    if (!String(url).includes('/snapshot') || (stuck -= 1) < 0) return answer;
    return { ...answer, json: never };
  };
  const room = roomIn(w.server, w.draw, { rungs: ['websocket'] }).start();
  await w.clock.run(120_000);
  assert.deepEqual(room.store.entries.map((e) => e.body), ['before']);
  room.stop();
});

// ---- what the reader says

test('a comment that was written while nobody could take it is sent when somebody can', async () => {
  const w = world();
  const page = new Page();
  const room = roomIn(w.server, w.draw, { token: tokenOf('ann'), env: { page } }).start();
  await w.clock.run(1_000);
  page.cut();
  room.publish('in a tunnel');
  await w.clock.run(20 * 60_000);
  page.join();
  await w.clock.run(5_000);
  assert.deepEqual(room.store.entries.map((e) => [e.body, e.fate]), [['in a tunnel', 'sent']]);
  room.stop();
});

test('a comment whose answer was lost is one line, though a snapshot has it as anybody\'s', async () => {
  const w = world();
  const room = roomIn(w.server, w.draw, { rungs: ['websocket'], token: tokenOf('ann') }).start();
  await w.clock.run(1_000);
  const [stream] = w.server.streams;
  // It is taken, and the stream dies before it says so.
  stream.send = (op) => { stream.deaf = true; w.server.publish(op); return true; };
  room.publish('said once');
  await w.clock.run(100);
  stream.end({ code: 1006 });
  w.server.trimmed = w.server.head;
  for (let n = 0; n < 3; n += 1) w.server.comment(`meanwhile ${n}`);
  w.server.trimmed = w.server.head;
  await w.clock.run(60_000);
  assert.deepEqual(room.store.entries.map((e) => [e.body, e.mine, e.fate]), [
    ['said once', true, 'sent'], ...[0, 1, 2].map((n) => [`meanwhile ${n}`, false, undefined]),
  ]);
  room.stop();
});

test('an own comment that was hidden before it was answered keeps nobody busy', async () => {
  const w = world();
  let timers = 0;
  // Without an end time would not go on.
  const timer = (fire, ms) => ((timers += 1) < 1_000 ? w.clock.timer(fire, ms) : null);
  const room = roomIn(w.server, w.draw, { rungs: ['websocket'], token: tokenOf('ann'), env: { timer } }).start();
  await w.clock.run(1_000);
  const [stream] = w.server.streams;
  const { send } = stream;
  stream.send = (op) => op.op === 'publish' || send.call(stream, op);
  room.publish('unanswered');
  await w.clock.run(100);
  w.server.add('retract', { all: true, reason: 'cleared' });
  await w.clock.run(60_000);
  assert.ok(timers < 200, `${timers} timers in a minute`);
  room.stop();
});

test('an own comment that waits is sent again, though the board has moved on', () => {
  const store = new Store('r');
  store.publish('k', ann, 'mine', 0);
  assert.equal(store.toSend(0).length, 1);
  store.apply({ type: 'error', code: 'overloaded', message: '', client_msg_id: 'k', retry_after_ms: 5_000 }, 0);
  for (let n = 1; n <= ENTRIES_MAX + 10; n += 1) store.apply({ type: 'comment', event_id: n, user: ann, body: `${n}`, ts: '2026-01-01T00:00:00.000Z' }, 1_000);
  assert.deepEqual(store.toSend(5_000).map((op) => op.client_msg_id), ['k']);
  store.apply({ type: 'comment', event_id: 999, user: ann, body: 'mine', ts: '2026-01-01T00:00:00.000Z', client_msg_id: 'k' }, 5_100);
  assert.deepEqual([store.entries.at(-1).body, store.entries.at(-1).mine, store.entries.filter((e) => e.body === 'mine').length], ['mine', true, 1]);
  assert.equal(store.toSend(100_000).length, 0);
});

// ---- what comes out of order

test('what was said before an own comment stands above it, though the answer came first and another one waits', () => {
  const store = new Store('r');
  store.publish('first', ann, 'first', 0);
  store.publish('second', ann, 'second', 0);
  store.apply({ type: 'publish_ack', client_msg_id: 'first', event_id: 12 }, 0);
  store.apply({ type: 'comment', event_id: 10, user: ann, body: 'earlier', ts: '2026-01-01T00:00:00.000Z' }, 0);
  store.apply({ type: 'comment', event_id: 14, user: ann, body: 'later', ts: '2026-01-01T00:00:00.000Z' }, 0);
  assert.deepEqual(store.entries.filter((e) => e.id !== undefined).map((e) => e.body), ['earlier', 'first', 'later']);
});

test('a banner that was taken down is not put up again by an older snapshot', () => {
  const store = new Store('r');
  const until_ts = '2026-01-01T01:00:00.000Z';
  const now = Date.parse('2026-01-01T00:00:00.000Z');
  const snapshot = (banners) => ({ room_id: 'r', as_of_event_id: 5, as_of_pseq: 0, scores: [], recent_comments: [], pinned: [], counters: { likes: {} }, config: {}, banners });
  const up = { type: 'banner', banner_id: 'b', body: 'up', until_ts };
  store.apply(up, now);
  assert.equal(store.banners(now).length, 1);
  store.apply({ type: 'banner', banner_id: 'b', until_ts, ended: true }, now);
  store.snapshot(snapshot([up]));
  assert.deepEqual(store.banners(now), []);
});

test('a revision that comes late changes nothing, whichever way it comes', () => {
  const goal = (event_id, revision, home, more) => ({ type: 'score_event', room_id: 'r', event_id, pseq: 1, match_id: 'm', key: 'g1', revision, kind: 'goal', state: 'confirmed', score: { home, away: 0 }, minute: '1', ...more });
  const orders = [[1, 2, 3], [3, 2, 1], [2, 3, 1], [3, 1, 2], [1, 3, 2], [2, 1, 3]];
  for (const order of orders) {
    const store = new Store('r');
    order.forEach((revision, n) => store.apply(goal(10 + n, revision, revision), 0));
    assert.deepEqual(store.scores.map((s) => s.score.home), [3], `${order}`);
    store.snapshot({ room_id: 'r', as_of_event_id: 5, as_of_pseq: 0, scores: [goal(9, 2, 2)], recent_comments: [], pinned: [], counters: { likes: {} }, config: {}, banners: [] });
    assert.deepEqual(store.scores.map((s) => s.score.home), [3], `${order}, and an older snapshot`);
  }
});

test('what was retracted is not shown, on each rung, though the retract came first or the snapshot is older', async () => {
  for (const rung of RUNGS) {
    const w = world();
    const bad = w.server.comment('bad');
    const old = w.server.snapshot();
    const room = roomIn(w.server, w.draw, { rungs: [rung] }).start();
    await w.clock.run(1_000);
    w.server.add('retract', { target_event_id: bad.event_id, reason: 'rude' });
    w.server.comment('good');
    await w.clock.run(1_000);
    // A cache gives the picture from before.
    w.server.snapshot = () => old;
    for (const stream of [...w.server.streams]) stream.hand([{ type: 'snapshot_required', room_id: 'r', reason: 'too_old', cursor: w.server.head, pseq: w.server.pseq, snapshot_url: '' }]);
    await w.clock.run(60_000);
    assert.deepEqual(room.store.entries.map((e) => [e.body, e.reason]), [['', 'rude'], ['good', undefined]], rung);
    room.stop();
  }
});
