// Random networks, thousands of them: whatever they do, no event comes twice, none is missing that no snapshot made good, and a
// client never tries more often than its ladder allows. A run is its seed: SEED=n runs that one alone.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { REFETCH_MS } from './built.mjs';
import { Clock, Server, chance, roomIn } from './world.mjs';

// The long form takes 10 000.
const RUNS = Number(process.env.RUNS ?? 1_000);
const seeds = process.env.SEED ? [Number(process.env.SEED)] : [...Array(RUNS).keys()].map((n) => n + 1);
const ROADS = ['good', 'good', 'blocked', 'refused', 'deaf', 'short', { code: 4112, retry_after_ms: 500, spread_ms: 2_000 }, { code: 4201 }, { code: 4153 }, { code: 4129, retry_after_ms: 3_000 }];

async function evening(seed) {
  const draw = chance(seed);
  const any = (list) => list[Math.floor(draw() * list.length)];
  const clock = new Clock();
  const server = new Server(clock, draw);
  server.lossy = 0.1;
  for (let n = 0; n < 5; n += 1) server.comment(`before ${n}`);
  const kept = new Map();
  const keeper = { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) };
  let seen = new Map();
  let visits = 0;
  const watch = (room) => {
    visits += 1;
    seen = new Map();
    room.on('event', (e) => {
      if (typeof e.event_id === 'number' && e.type !== 'publish_ack') seen.set(e.event_id, (seen.get(e.event_id) ?? 0) + 1);
    });
    return room.start();
  };
  const make = () => watch(roomIn(server, draw, { env: { keeper } }));
  let room = make();
  let said = 0;
  let revision = 0;
  const step = async (ms) => {
    for (const stream of server.streams) stream.keepalive();
    const roll = draw();
    if (roll < 0.6) server.comment(`c${(said += 1)}`);
    else if (roll < 0.75) server.goal('g', (revision += 1));
    else if (roll < 0.8) room.publish(`own ${(said += 1)}`);
    await clock.run(ms);
  };
  for (let phase = 0; phase < 5; phase += 1) {
    for (const way of Object.keys(server.roads)) server.roads[way] = any(ROADS);
    server.api = any(['good', 'good', 'flaky', 'refused', 'blocked']);
    server.delay = any([5, 50, 400]);
    // Streams that are open feel it as well.
    for (const stream of [...server.streams]) {
      const what = any(['lives', 'dies', 'falls silent', 'closed']);
      if (what === 'dies') stream.end({ code: 1006 });
      if (what === 'falls silent') stream.deaf = true;
      if (what === 'closed') { stream.on.events([{ type: 'close', code: 4200 }]); stream.end({ code: 4200 }); }
    }
    if (draw() < 0.2) server.trimmed = server.head;
    for (let n = 0; n < 8; n += 1) await step(any([200, 2_000, 15_000]));
    if (draw() < 0.15) {
      // The page is loaded anew.
      room.stop();
      room = make();
    }
  }
  for (const way of Object.keys(server.roads)) server.roads[way] = 'good';
  server.api = 'good';
  server.lossy = 0;
  server.delay = 20;
  for (let n = 0; n < 40; n += 1) await step(10_000);
  await clock.run(5_000);

  const twice = [...seen].filter(([, n]) => n > 1).map(([id]) => id);
  assert.deepEqual(twice, [], 'no event twice');
  assert.equal(room.status.state, 'live');
  assert.equal(room.cursor, server.head, 'the cursor is at the head');
  // What was not heard on a stream lies in a gap that the server told of, or before the first snapshot.
  const first = Math.min(...[...seen.keys(), Infinity]);
  const missed = server.log.filter((e) => e.event_id > first && !seen.has(e.event_id) && !server.jumps.some(([from, to]) => e.event_id > from && e.event_id <= to));
  assert.deepEqual(missed.map((e) => e.event_id), [], 'no gap that nobody told of');
  // And all of it is in the picture.
  const shown = new Set(room.store.entries.map((e) => e.id));
  const newest = server.log.filter((e) => e.type === 'comment').slice(-40).map((e) => e.event_id);
  assert.deepEqual(newest.filter((id) => !shown.has(id)), [], 'the newest comments are shown');
  const lines = room.store.entries.filter((e) => e.id !== undefined).map((e) => e.id);
  assert.deepEqual(lines, [...new Set(lines)].sort((a, b) => a - b), 'each once, in the room\'s order');
  if (revision > 0) assert.equal(room.store.scores[0].revision, revision, 'the newest revision');
  if (visits === 1) assert.equal(room.store.holes, 0, 'no hole among priority events');
  // Own comments: durable once, shown once, decided.
  const bodies = server.log.filter((e) => e.client_msg_id).map((e) => e.client_msg_id);
  assert.equal(new Set(bodies).size, bodies.length, 'one place for one key');
  for (const e of room.store.entries.filter((e) => e.mine)) assert.ok(e.fate === 'sent' || e.fate === 'unknown', `${e.body}: ${e.fate}`);
  for (const [n, later] of server.snapshots.filter((s) => s.min !== null).entries()) {
    const before = server.snapshots.filter((s) => s.min !== null)[n - 1];
    // A page that was loaded anew may ask anew.
    if (before && visits === 1) assert.ok(later.at - before.at >= REFETCH_MS - 1_000, `snapshots ${later.at - before.at} ms apart`);
  }
  room.stop();
}

test(`${seeds.length} evenings with random networks`, { timeout: 600_000 }, async () => {
  for (const seed of seeds) {
    try {
      await evening(seed);
    } catch (fault) {
      throw new Error(`SEED=${seed} shows it: ${fault.message}`, { cause: fault });
    }
  }
});

test('a day without a server is at most 1 460 attempts, and the ladder is gone down first', { timeout: 600_000 }, async () => {
  const outages = ['blocked', 'refused', { code: 4129, retry_after_ms: 0 }, { code: 4201 }, { code: 4200, retry_after_ms: 0, spread_ms: 0 }, 'short', 'deaf', { code: 4153, retry_after_ms: 100, spread_ms: 100 }];
  for (let seed = 1; seed <= 40; seed += 1) {
    const draw = chance(seed);
    const clock = new Clock();
    const server = new Server(clock, draw);
    const room = roomIn(server, draw);
    const kinds = seed <= outages.length ? [outages[seed - 1]] : outages.filter((kind) => kind !== 'deaf' && kind !== 'short');
    server.api = seed % 2 ? 'refused' : 'blocked';
    for (const way of Object.keys(server.roads)) server.roads[way] = kinds[Math.floor(draw() * kinds.length)];
    room.start();
    await clock.run(86_400_000);
    assert.ok(server.attempts.length <= 1_460, `seed ${seed} (${JSON.stringify(kinds)}): ${server.attempts.length} attempts`);
    assert.ok(server.attempts.length > 500, `seed ${seed}: it gave up after ${server.attempts.length}`);
    if (seed <= 2) {
      assert.deepEqual(server.attempts.slice(0, 6).map((a) => a.way), ['websocket', 'websocket', 'sse', 'sse', 'poll', 'poll']);
      assert.equal(room.status.state, 'trouble');
      // It comes back by itself.
      for (const way of Object.keys(server.roads)) server.roads[way] = 'good';
      server.api = 'good';
      for (let n = 0; n < 18; n += 1) {
        for (const stream of server.streams) stream.keepalive();
        await clock.run(10_000);
      }
      assert.equal(room.status.state, 'live');
    }
    room.stop();
  }
});
