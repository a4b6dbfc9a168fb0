// A whole room in a world that is moved by hand.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { statusText } from './built.mjs';
import { Browser, Page, RUNGS, roomIn, world } from './world.mjs';

/** A room and what it heard. */
function watch({ server, draw }, options) {
  const room = roomIn(server, draw, options);
  const heard = [];
  const statuses = [];
  const reports = [];
  room.on('event', (e) => { if (e.type === 'comment') heard.push(e.body); });
  room.on('status', (s) => statuses.push(s.state));
  room.on('report', (r) => reports.push(r));
  return { room: room.start(), heard, statuses, reports };
}

const alive = async ({ clock, server }, ms) => {
  for (let at = 0; at < ms; at += 10_000) {
    for (const stream of server.streams) stream.keepalive();
    await clock.run(Math.min(10_000, ms - at));
  }
};

const tokenOf = (sub, n = 0) => `x.${btoa(JSON.stringify({ sub, name: sub.toUpperCase(), n })).replaceAll('=', '')}.x`;

for (const rung of RUNGS) {
  test(`${rung}: a cold load is a snapshot and the stream from its position`, async () => {
    const w = world();
    for (let n = 0; n < 3; n += 1) w.server.comment(`before ${n}`);
    const { room, heard } = watch(w, { rungs: [rung] });
    await w.clock.run(1_000);
    assert.deepEqual(room.store.entries.map((e) => e.body), ['before 0', 'before 1', 'before 2']);
    w.server.comment('after');
    await w.clock.run(1_000);
    assert.deepEqual(heard, ['after']);
    assert.equal(room.status.state, 'live');
    assert.equal(w.server.attempts.length, 1);
    assert.equal(w.server.snapshots.length, 1);
    room.stop();
  });

  test(`${rung}: what can not be resumed is made good by a snapshot`, async () => {
    const w = world();
    w.server.comment('before');
    const { room, reports } = watch(w, { rungs: [rung] });
    await w.clock.run(1_000);
    for (const stream of [...w.server.streams]) stream.end({ code: 1006 });
    for (let n = 0; n < 10; n += 1) w.server.comment(`missed ${n}`);
    w.server.trimmed = w.server.head;
    await w.clock.run(3_000);
    w.server.comment('after');
    await w.clock.run(3_000);
    assert.deepEqual(room.store.entries.map((e) => e.body), ['before', ...[...Array(10).keys()].map((n) => `missed ${n}`), 'after']);
    assert.deepEqual(reports.map((r) => r.kind), ['snapshot_required']);
    room.stop();
  });

  test(`${rung}: a pause is shown, keeps the picture, and ends by itself`, async () => {
    const w = world();
    w.server.comment('before');
    const { room, statuses } = watch(w, { rungs: [rung] });
    await w.clock.run(1_000);
    const pause = { type: 'feed_paused', room_id: 'r', reason: 'owner_away', snapshot_url: '', retry_after_ms: 5_000, spread_ms: 1_000 };
    for (const stream of w.server.streams) stream.hand([pause]);
    assert.equal(room.status.state, 'paused');
    assert.equal(room.store.entries.length, 1);
    // A stream that is opened meanwhile is turned away; it is still a pause.
    w.server.roads[rung] = { code: 4153, retry_after_ms: 1_000, spread_ms: 1_000 };
    for (const stream of [...w.server.streams]) stream.end({ code: 1006 });
    await w.clock.run(8_000);
    assert.equal(room.status.state, 'paused');
    w.server.roads[rung] = 'good';
    w.server.comment('after');
    await w.clock.run(25_000);
    assert.equal(room.status.state, 'live');
    assert.deepEqual(room.store.entries.map((e) => e.body), ['before', 'after']);
    assert.ok(!statuses.includes('stopped'));
    room.stop();
  });
}

test('a code that says stop is the end, and is told', async () => {
  const w = world();
  w.server.roads.websocket = { code: 4003, reason: 'not_allowed' };
  const { room } = watch(w);
  await w.clock.run(3_600_000);
  assert.deepEqual([room.status.state, room.status.code, room.status.reason, w.server.attempts.length], ['stopped', 4003, 'not_allowed', 1]);
  room.stop();
});

test('a socket whose close never comes is asked, let go of, and heard no more', async () => {
  const w = world();
  const { room, heard } = watch(w, { rungs: ['websocket'] });
  await w.clock.run(1_000);
  const [zombie] = w.server.streams;
  zombie.deaf = true;
  w.server.comment('while it was dead');
  await w.clock.run(40_000);
  assert.deepEqual(heard, ['while it was dead']);
  assert.equal(zombie.gone, true);
  assert.equal(w.server.attempts.at(-1).failure, 'silence');
  zombie.on.events([{ type: 'comment', event_id: 999_999, user: { id: 'x' }, body: 'from the grave', ts: '' }]);
  zombie.on.ended({ code: 1006 }, 'closed');
  assert.deepEqual([heard.length, room.status.state], [1, 'live']);
  room.stop();
});

test('timers that are held back in a background tab do not kill a living stream', async () => {
  for (const rung of RUNGS) {
    const w = world();
    const page = new Page();
    const { clock } = w;
    // A hidden tab's timers fire once a minute.
    const timer = (fire, ms) => clock.timer(fire, page.isHidden ? Math.ceil(Math.max(ms, 1) / 60_000) * 60_000 : ms);
    const { room } = watch(w, { rungs: [rung], env: { page, timer } });
    await clock.run(1_000);
    page.hide();
    for (let n = 0; n < 60; n += 1) {
      for (const stream of w.server.streams) stream.keepalive();
      await clock.run(14_000);
    }
    assert.equal(w.server.attempts.length, 1, rung);
    assert.equal(room.status.state, 'live');
    room.stop();
  }
});

test('nothing is opened while the page is hidden, and at once when it is shown', async () => {
  const w = world();
  const page = new Page();
  const { room, heard } = watch(w, { env: { page } });
  await w.clock.run(1_000);
  page.hide();
  await w.clock.run(60_000);
  assert.equal(room.status.state, 'live', 'what is open stays open');
  for (const stream of [...w.server.streams]) stream.end({ code: 1006 });
  w.server.comment('unseen');
  await w.clock.run(3_600_000);
  assert.deepEqual([room.status.state, w.server.attempts.length], ['hidden', 1]);
  page.show();
  await w.clock.run(1_000);
  assert.deepEqual([room.status.state, heard], ['live', ['unseen']]);
  room.stop();

  const other = watch(w, { reconnect_hidden: true, env: { page: Object.assign(new Page(), { isHidden: true }) } });
  await w.clock.run(1_000);
  assert.equal(other.room.status.state, 'live', 'it was asked to');
  other.room.stop();
});

test('a network that goes and comes back is not waited for', async () => {
  const w = world();
  const page = new Page();
  const { room, heard } = watch(w, { env: { page } });
  await w.clock.run(1_000);
  page.cut();
  assert.equal(room.status.state, 'offline');
  w.server.comment('meanwhile');
  await w.clock.run(3_600_000);
  assert.equal(w.server.attempts.length, 1);
  page.join();
  await w.clock.run(1_000);
  assert.deepEqual([room.status.state, heard], ['live', ['meanwhile']]);
  // Back from the browser's cache, sockets are dead without a word.
  page.restore();
  await w.clock.run(1_000);
  assert.deepEqual([room.status.state, w.server.attempts.length], ['live', 3]);
  room.stop();
});

test('coming back does not make an outage of the server cheaper to ask about than the ladder allows', async () => {
  const w = world();
  const page = new Page();
  for (const way of RUNGS) w.server.roads[way] = 'refused';
  const { room } = watch(w, { env: { page } });
  await w.clock.run(180_000);
  assert.equal(room.status.state, 'trouble');
  const before = w.server.attempts.length;
  page.hide();
  page.show();
  await w.clock.run(1_000);
  assert.ok(w.server.attempts.length <= before + 1);
  room.stop();
});

test('trouble is told with the time of the last comment, and the picture stays', async () => {
  const w = world();
  w.server.comment('before');
  const { room } = watch(w);
  await w.clock.run(1_000);
  for (const way of RUNGS) w.server.roads[way] = 'refused';
  for (const stream of [...w.server.streams]) stream.end({ code: 1006 });
  await w.clock.run(300_000);
  assert.match(statusText(room.status), /^Connection problems, last comment at \d\d:\d\d$/);
  assert.equal(room.store.entries.length, 1);
  room.stop();
});

test('a first connect is spread as far as it is asked to, and no further', async () => {
  const at = [];
  for (let seed = 1; seed <= 40; seed += 1) {
    const w = world(seed);
    const { room } = watch(w, { connect_spread_ms: 60_000 });
    const start = w.clock.now;
    await w.clock.run(5_000);
    at.push(w.server.attempts[0].at - start);
    room.stop();
  }
  assert.ok(Math.max(...at) <= 3_100 && Math.max(...at) > 2_000 && Math.min(...at) < 1_000, `${at}`);
});

test('a rung is opened at its own address first, and at the server\'s when that is dead', async () => {
  const w = world();
  const bases = [];
  const dead = (way) => ({ way, open: (opening, on) => {
    bases.push(opening.base);
    if (opening.base === 'http://server') return w.server.transport(way).open(opening, on);
    w.clock.timer(() => on.ended({ code: 1006 }, 'refused'), 10);
    return { send: () => false, abandon() {} };
  } });
  const { room } = watch(w, { transports: { websocket: dead('websocket'), sse: dead('sse'), poll: dead('poll') }, endpoints: { websocket: 'wss://edge.example/' } });
  await w.clock.run(5_000);
  assert.deepEqual([bases, room.status.way], [['https://edge.example', 'http://server'], 'websocket']);
  room.stop();
});

test('of a list of SSE hosts clients take different ones', async () => {
  const hosts = new Set();
  for (let seed = 1; seed <= 30; seed += 1) {
    const w = world(seed);
    const sse = { way: 'sse', open: (opening) => { hosts.add(opening.base); return { send: () => false, abandon() {} }; } };
    const { room } = watch(w, { rungs: ['sse'], transports: { sse }, endpoints: { sse: ['http://a', 'http://b', 'http://c'] } });
    await w.clock.run(1_000);
    room.stop();
  }
  assert.deepEqual([...hosts].sort(), ['http://a', 'http://b', 'http://c']);
});

test('a token is asked for at the start, before its end, and after it; the stream stays open where it can', async () => {
  const w = world();
  const reasons = [];
  let fail = 0;
  const token = async (reason) => {
    reasons.push(reason);
    if (fail > 0) { fail -= 1; throw new Error('the identity provider is away'); }
    return tokenOf('ann', reasons.length);
  };
  const { room } = watch(w, { rungs: ['websocket'], token });
  await w.clock.run(1_000);
  const [stream] = w.server.streams;
  const sent = [];
  const send = stream.send.bind(stream);
  stream.send = (op) => { sent.push(op); return send(op); };
  assert.equal(room.user.id, 'ann');
  stream.hand([{ type: 'token_expiring', in_ms: 120_000 }]);
  await w.clock.run(100);
  assert.deepEqual(sent.filter((op) => op.op === 'auth').map((op) => op.token), [tokenOf('ann', 2)]);
  // Late: the provider fails twice, and is asked again.
  fail = 2;
  stream.hand([{ type: 'token_expiring', in_ms: 60_000 }]);
  await w.clock.run(15_000);
  assert.equal(sent.filter((op) => op.op === 'auth').length, 2);
  assert.equal(w.server.attempts.length, 1, 'the stream stayed open');
  // It ran out all the same.
  stream.end({ code: 4101, retry_after_ms: 0, spread_ms: 100 });
  await w.clock.run(30_000);
  assert.deepEqual([...new Set(reasons)], ['start', 'expiring', 'expired']);
  assert.equal(room.status.state, 'live');
  room.stop();
});

test('a token that nothing can renew is the end of it, and one that is not to be had is not asked for in a circle', async () => {
  const w = world();
  w.server.roads.websocket = { code: 4101, retry_after_ms: 0, spread_ms: 0 };
  const fixed = watch(w, { rungs: ['websocket'], token: tokenOf('ann') });
  await w.clock.run(60_000);
  assert.deepEqual([fixed.room.status.state, fixed.room.status.code, w.server.attempts.length], ['stopped', 4101, 1]);
  fixed.room.stop();
  let asked = 0;
  const away = watch(w, { rungs: ['websocket'], token: () => { asked += 1; if (asked === 1) return tokenOf('ann'); throw new Error('away'); } });
  await w.clock.run(3_600_000);
  assert.ok(asked < 90, `asked ${asked} times in an hour`);
  assert.notEqual(away.room.status.state, 'stopped');
  away.room.stop();
});

test('followed users are told to every stream', async () => {
  const w = world();
  const { room } = watch(w, { rungs: ['websocket'] });
  const sent = [];
  await w.clock.run(1_000);
  room.follow('kim');
  room.follow('lee');
  room.unfollow('kim');
  for (const stream of [...w.server.streams]) stream.end({ code: 1006 });
  w.server.transport('websocket');
  const add = w.server.streams.add.bind(w.server.streams);
  w.server.streams.add = (stream) => { const { send } = stream; stream.send = function (op) { sent.push(op); return send.call(stream, op); }; return add(stream); };
  await w.clock.run(5_000);
  assert.deepEqual(sent.filter((op) => op.op === 'follow'), [{ op: 'follow', user_id: 'lee' }]);
  room.stop();
});

// ---- own comments

test('an own comment is on the board at once, and has its place when the server gave it one', async () => {
  for (const rung of RUNGS) {
    const w = world();
    const { room } = watch(w, { rungs: [rung], token: tokenOf('ann') });
    await w.clock.run(1_000);
    room.publish('mine');
    assert.deepEqual(room.store.entries.map((e) => [e.body, e.fate, e.mine]), [['mine', 'sending', true]]);
    w.server.comment('theirs');
    await w.clock.run(3_000);
    assert.deepEqual(room.store.entries.map((e) => [e.body, e.mine, e.mine && e.fate]).sort(), [['mine', true, 'sent'], ['theirs', false, false]], rung);
    assert.equal(w.server.log.filter((e) => e.body === 'mine').length, 1);
    room.stop();
  }
});

test('answers that decide nothing are followed by the same key; definite ones are the end', async () => {
  const w = world();
  const { room } = watch(w, { rungs: ['websocket'] });
  await w.clock.run(1_000);
  const [stream] = w.server.streams;
  const answers = [
    (op) => ({ type: 'error', code: 'overloaded', message: '', client_msg_id: op.client_msg_id, retry_after_ms: 700 }),
    (op) => ({ type: 'error', code: 'outcome_unknown', message: '', client_msg_id: op.client_msg_id }),
    (op) => ({ type: 'moderation_pending', client_msg_id: op.client_msg_id, retry_after_ms: 1_000 }),
    () => null,
    (op) => ({ type: 'rate_limited', reason: 'slow_mode', client_msg_id: op.client_msg_id, retry_after_ms: 30_000 }),
  ];
  const sent = [];
  stream.send = (op) => {
    if (op.op !== 'publish') return true;
    const answer = answers[sent.length]?.(op);
    sent.push(op.client_msg_id);
    if (answer) stream.later(() => stream.hand([answer]));
    return true;
  };
  const key = room.publish('again and again');
  await alive(w, 25_000);
  assert.deepEqual(sent, Array(5).fill(key));
  const [line] = room.store.entries;
  assert.deepEqual([line.fate, line.reason, line.retryAfterMs], ['refused', 'slow_mode', 30_000]);
  await alive(w, 60_000);
  assert.equal(sent.length, 5);
  room.stop();
});

test('a wide room keeps, shows or does not show an own comment, and a reconnect asks again', async () => {
  const w = world();
  const { room } = watch(w, { rungs: ['websocket'] });
  await w.clock.run(1_000);
  const stream = () => [...w.server.streams][0];
  const sent = [];
  w.server.publish = (op) => {
    sent.push(op.client_msg_id);
    return { type: 'publish_ack', client_msg_id: op.client_msg_id, raw_id: 7_000 };
  };
  const key = room.publish('in the lottery');
  await w.clock.run(1_000);
  assert.equal(room.store.entries[0].fate, 'sent');
  await alive(w, 30_000);
  assert.equal(sent.length, 1, 'it is safe: nothing is sent again on the same stream');
  stream().end({ code: 1006 });
  await w.clock.run(3_000);
  assert.deepEqual(sent, [key, key], 'the new stream is asked for the rest');
  stream().hand([{ type: 'publish_commit', client_msg_id: key, shown: false }]);
  assert.equal(room.store.entries.find((e) => e.clientMsgId === key).fate, 'kept');
  const won = w.server.comment('in the lottery', undefined);
  await w.clock.run(1_000);
  stream().hand([{ type: 'publish_commit', client_msg_id: key, event_id: won.event_id }]);
  const lines = room.store.entries.filter((e) => e.body === 'in the lottery');
  assert.deepEqual(lines.map((e) => [e.id, e.mine, e.fate]), [[won.event_id, true, 'shown']]);
  room.stop();
});

test('what a moderator has is asked about by the next stream, and its end is heard an hour later', async () => {
  const w = world();
  const { room } = watch(w, { rungs: ['websocket'] });
  await w.clock.run(1_000);
  const stream = () => [...w.server.streams][0];
  const fates = () => room.store.entries.map((e) => [e.body, e.fate]);
  const sent = [];
  let answer = 'moderation_pending';
  w.server.publish = (op) => {
    sent.push(op.client_msg_id);
    return { type: answer, client_msg_id: op.client_msg_id };
  };
  const first = room.publish('denied meanwhile');
  await w.clock.run(1_000);
  await alive(w, 30_000);
  assert.deepEqual([sent, fates()], [[first], [['denied meanwhile', 'waiting']]]);
  answer = 'moderation_failed';
  stream().end({ code: 1006 });
  await w.clock.run(3_000);
  assert.deepEqual([sent, fates()], [[first, first], [['denied meanwhile', 'refused']]]);

  answer = 'moderation_pending';
  const second = room.publish('denied late');
  await alive(w, 3_600_000);
  // By then the server knows the key no more: the same one would be another comment.
  stream().end({ code: 1006 });
  await w.clock.run(3_000);
  assert.deepEqual(sent, [first, first, second]);
  stream().hand([{ type: 'moderation_failed', client_msg_id: second }]);
  assert.deepEqual(fates(), [['denied meanwhile', 'refused'], ['denied late', 'refused']]);
  room.stop();
});

// ---- tabs

function tabs(w, n, options = {}) {
  const browser = new Browser();
  const pages = [...Array(n)].map(() => new Page());
  const rooms = pages.map((page) => watch(w, { ...options, env: { page, locks: browser.locks, channel: browser.channel } }));
  return { browser, pages, rooms };
}

test('twelve tabs hold one poll, hear everything once, and another takes over when the leader goes', async () => {
  for (const rung of RUNGS) {
    const w = world();
    w.server.comment('before');
    const { rooms } = tabs(w, 12, { rungs: [rung] });
    await alive(w, 2_000);
    assert.equal(w.server.streams.size, 1, rung);
    assert.deepEqual(rooms.map(({ room }) => room.status.state), Array(12).fill('live'));
    w.server.comment('one');
    await w.clock.run(1_000);
    const leader = rooms.findIndex(({ room }) => room.status.way === rung);
    rooms[leader].room.stop();
    w.server.comment('two');
    await alive(w, 10_000);
    w.server.comment('three');
    await alive(w, 10_000);
    const others = rooms.filter((_, n) => n !== leader);
    for (const { heard, room } of others) {
      assert.deepEqual(heard, ['one', 'two', 'three'], rung);
      assert.deepEqual(room.store.entries.map((e) => e.body), ['before', 'one', 'two', 'three']);
    }
    assert.equal(w.server.streams.size, 1);
    for (const { room } of others) room.stop();
    assert.equal(w.server.streams.size, 0);
  }
});

test('what a tab says goes out on the stream that all share, and is its own there alone', async () => {
  for (const rung of ['websocket', 'sse']) {
    const w = world();
    const { rooms } = tabs(w, 3, { rungs: [rung], token: tokenOf('ann') });
    await alive(w, 2_000);
    const follower = rooms.findIndex(({ room }) => room.status.way === 'tab');
    rooms[follower].room.publish('from a follower');
    await alive(w, 5_000);
    for (const { room } of rooms) {
      assert.deepEqual(room.store.entries.map((e) => [e.body, e.mine, e.fate]), [['from a follower', true, 'sent']], rung);
    }
    assert.equal(w.server.log.filter((e) => e.body === 'from a follower').length, 1);
    for (const { room } of rooms) room.stop();
  }
});

test('a leader that is frozen with its lock is deposed by a tab that is looked at', async () => {
  const w = world();
  const { browser, pages, rooms } = tabs(w, 3, { rungs: ['websocket'] });
  await alive(w, 2_000);
  const leader = rooms.findIndex(({ room }) => room.status.way === 'websocket');
  browser.freeze(browser.channelNames[0], leader);
  for (const [n, page] of pages.entries()) if (n !== (leader + 1) % 3) page.hide();
  w.server.comment('unheard');
  await alive(w, 60_000);
  assert.deepEqual(rooms[(leader + 1) % 3].heard, ['unheard']);
  assert.equal(rooms[(leader + 1) % 3].room.status.way, 'websocket');
  for (const { room } of rooms) room.stop();
});

test('a hidden leader whose stream breaks leaves the lead to a tab that is looked at', async () => {
  const w = world();
  const { pages, rooms } = tabs(w, 3, { rungs: ['websocket'] });
  await alive(w, 2_000);
  const leader = rooms.findIndex(({ room }) => room.status.way === 'websocket');
  pages[leader].hide();
  for (const stream of [...w.server.streams]) stream.end({ code: 1006 });
  w.server.comment('for who looks');
  await alive(w, 10_000);
  for (const [n, { heard }] of rooms.entries()) if (n !== leader) assert.deepEqual(heard, ['for who looks']);
  pages[leader].show();
  await alive(w, 5_000);
  assert.deepEqual(rooms[leader].heard, ['for who looks']);
  assert.equal(w.server.streams.size, 1);
  for (const { room } of rooms) room.stop();
});

test('tabs of different users share nothing', async () => {
  const w = world();
  const browser = new Browser();
  const rooms = ['ann', 'bob'].map((sub) => watch(w, { token: tokenOf(sub), env: { page: new Page(), locks: browser.locks, channel: browser.channel } }));
  await alive(w, 2_000);
  assert.equal(w.server.streams.size, 2);
  for (const { room } of rooms) room.stop();
});

test('trouble of the tab that leads is told in all of them', async () => {
  const w = world();
  const { rooms } = tabs(w, 3);
  await alive(w, 2_000);
  for (const way of RUNGS) w.server.roads[way] = 'refused';
  for (const stream of [...w.server.streams]) stream.end({ code: 1006 });
  await alive(w, 200_000);
  assert.deepEqual(rooms.map(({ room }) => room.status.state), Array(3).fill('trouble'));
  for (const { room } of rooms) room.stop();
});
