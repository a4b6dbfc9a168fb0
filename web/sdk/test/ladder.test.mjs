import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Ladder, PROBE_MS, PROVEN_MS, TROUBLE_MS_MAX, TROUBLE_MS_MIN } from './built.mjs';

const ALL = ['websocket', 'sse', 'poll'];
const way = (ladder) => { const { rung, tries } = ladder.open(); return `${rung} ${tries}`; };

test('each rung is tried twice before the next, and then it is trouble', () => {
  const ladder = new Ladder(ALL);
  const tried = [];
  for (let n = 0; n < 6; n += 1) {
    assert.equal(ladder.trouble, false);
    tried.push(way(ladder));
    const wait = ladder.failed('refused', 0, 0.5);
    if (n < 5) assert.ok(wait >= 500 && wait <= 20_000, `${wait}`);
    else assert.ok(wait >= TROUBLE_MS_MIN && wait <= TROUBLE_MS_MAX, `${wait}`);
  }
  assert.deepEqual(tried, ['websocket 0', 'websocket 1', 'sse 0', 'sse 1', 'poll 0', 'poll 1']);
  assert.equal(ladder.trouble, true);
  // From then on one attempt each, over the rungs in turn.
  const more = [...Array(6)].map(() => { const { rung } = ladder.open(); ladder.failed('refused', 0, 0); return rung; });
  assert.deepEqual(more, ['websocket', 'sse', 'poll', 'websocket', 'sse', 'poll']);
});

test('what worked last is tried first, and the rungs above it after those below', () => {
  const ladder = new Ladder(ALL, 'sse');
  const tried = [...Array(6)].map(() => { const { rung } = ladder.open(); ladder.failed('timeout', 0, 0); return rung; });
  assert.deepEqual(tried, ['sse', 'sse', 'poll', 'poll', 'websocket', 'websocket']);
});

test('nonsense that was remembered is forgotten', () => {
  assert.equal(new Ladder(ALL, 'pigeon').rung, 'websocket');
  assert.equal(new Ladder(['poll', 'poll', 'sse'], null).rung, 'poll');
  assert.throws(() => new Ladder([]));
});

test('a stream that held is followed by its own rung, with the shortest waits', () => {
  const ladder = new Ladder(ALL);
  ladder.open();
  ladder.failed('refused', 0, 1);
  ladder.open();
  ladder.good(1_000, 0.5);
  const wait = ladder.failed('closed', 1_000 + PROVEN_MS, 0);
  assert.deepEqual([wait, way(ladder)], [500, 'websocket 0']);
  assert.equal(ladder.failed('closed', 0, 0), 500);
  assert.equal(way(ladder), 'websocket 1', 'the failure after it is the first');
});

test('one that is greeted and dies at once is no better than one that is refused', () => {
  const ladder = new Ladder(ALL);
  const tried = [];
  for (let n = 0; n < 6; n += 1) {
    tried.push(ladder.open().rung);
    ladder.good(n, 0);
    ladder.failed('closed', n + 1, 0);
  }
  assert.deepEqual(tried, ['websocket', 'websocket', 'sse', 'sse', 'poll', 'poll']);
  assert.equal(ladder.trouble, true);
});

test('from a lower rung the higher ones are looked at every five minutes, in turns', () => {
  const ladder = new Ladder(ALL, 'poll');
  ladder.open();
  ladder.good(0, 0.5);
  assert.equal(ladder.probeAt, PROBE_MS);
  assert.equal(ladder.probe(PROBE_MS - 1, 0.5), null);
  assert.equal(ladder.probe(PROBE_MS, 0.5).rung, 'websocket');
  assert.equal(ladder.probe(PROBE_MS, 0.5), null, 'once');
  assert.equal(ladder.probe(2 * PROBE_MS, 0.5).rung, 'sse');
  assert.equal(ladder.probe(3 * PROBE_MS, 0.5).rung, 'websocket');
  ladder.good(3 * PROBE_MS, 0.5, 'websocket');
  assert.equal(ladder.probeAt, null, 'there is nothing above the top');
});

test('looks upward are spread, so that clients do not look together', () => {
  const at = [0, 0.5, 1].map((draw) => { const ladder = new Ladder(ALL, 'sse'); ladder.open(); ladder.good(0, draw); return ladder.probeAt; });
  assert.deepEqual(at, [270_000, 300_000, 330_000]);
});

test('what the server asks for is waited, never less, and is no failure of the rung', () => {
  const ladder = new Ladder(ALL);
  ladder.open();
  assert.equal(ladder.refused({ code: 4112, retry_after_ms: 500, spread_ms: 10_000 }, 0, 0.5), 5_500);
  ladder.open();
  assert.equal(ladder.refused({ code: 4129 }, 0, 0.5), 10_000, 'the waits of the code, where it tells none');
  ladder.open();
  for (let n = 0; n < 3; n += 1) assert.ok(ladder.refused({ code: 4112, retry_after_ms: 60_000 }, 0, 0) >= 60_000);
  assert.equal(way(ladder), 'websocket 0');
});

test('a resume is at once, and a second one within ten seconds waits', () => {
  const ladder = new Ladder(ALL);
  ladder.open();
  assert.equal(ladder.refused({ code: 4200, retry_after_ms: 0, spread_ms: 1000 }, 100_000, 0.5), 0);
  assert.equal(ladder.refused({ code: 4200, retry_after_ms: 0, spread_ms: 1000 }, 105_000, 0.5), 500);
  assert.equal(ladder.refused({ code: 4201, retry_after_ms: 0, spread_ms: 2000 }, 116_000, 0.5), 0);
});

test('a last failure is told at the next attempt', () => {
  const ladder = new Ladder(ALL);
  assert.deepEqual(ladder.open(), { rung: 'websocket', attempt: 1, tries: 0, failure: null });
  ladder.failed('timeout', 0, 0);
  assert.deepEqual(ladder.open(), { rung: 'websocket', attempt: 2, tries: 1, failure: 'timeout' });
});
