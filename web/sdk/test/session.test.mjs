import assert from 'node:assert/strict';
import { test } from 'node:test';
import { REFETCH_MS, Session } from './built.mjs';

const hello = (cursor, more = {}) => ({ type: 'hello', session: 's', cursor, pseq: 0, resumed: true, ...more });
const comment = (event_id) => ({ type: 'comment', event_id });
const goal = (event_id, pseq) => ({ type: 'score_event', event_id, pseq });
const ids = (taken) => taken.events.filter((e) => e.event_id).map((e) => e.event_id);

test('an event is news once, on whichever stream it comes', () => {
  const session = new Session('r', 10);
  assert.deepEqual(ids(session.take([hello(10), comment(11), comment(12)])), [11, 12]);
  // Another stream takes over, from where it was opened.
  assert.deepEqual(ids(session.take([hello(11), comment(12), comment(13)])), [13]);
  assert.equal(session.cursor, 13);
});

test('an answer to the viewer moves no cursor', () => {
  const session = new Session('r', 10);
  const taken = session.take([{ type: 'publish_ack', event_id: 20 }, comment(15)]);
  assert.deepEqual([session.cursor, taken.events.length], [15, 2]);
});

test('a hole among priority events is told, and a snapshot asked for', () => {
  const session = new Session('r', 10);
  session.take([hello(10, { pseq: 4 })]);
  const taken = session.take([goal(11, 5), goal(15, 8)]);
  assert.deepEqual(taken.reports, [{ kind: 'pseq_hole', from: 6, to: 7 }]);
  assert.equal(session.refetch(1_000_000), '/v1/rooms/r/snapshot?min=15');
});

test('who was greeted elsewhere than it asked fetches a snapshot no older than that, once for both words', () => {
  const session = new Session('r', 10);
  session.take([hello(50, { resumed: false, pseq: 9 }), { type: 'snapshot_required', reason: 'too_old', cursor: 50, pseq: 9 }]);
  assert.equal(session.cursor, 50);
  assert.equal(session.refetch(1_000_000), '/v1/rooms/r/snapshot?min=50');
  assert.equal(session.refetch(1_000_001), null);
  session.fetched(52, 9, false);
  assert.equal(session.cursor, 50, 'what lies between comes on the stream and is joined by id');
  assert.equal(session.refetchAt, null);
});

test('snapshots are fetched once in thirty seconds, and none that is wanted is forgotten', () => {
  const session = new Session('r', 10);
  const required = (cursor) => ({ type: 'snapshot_required', reason: 'too_old', cursor, pseq: 0 });
  session.take([required(50)]);
  assert.ok(session.refetch(100_000));
  session.take([required(60), required(70)]);
  assert.equal(session.refetch(100_000 + REFETCH_MS), null, 'one is under way');
  session.fetched(55, 0, false);
  assert.equal(session.refetch(100_000 + REFETCH_MS - 1), null);
  assert.equal(session.refetchAt, 100_000 + REFETCH_MS);
  assert.equal(session.refetch(100_000 + REFETCH_MS), '/v1/rooms/r/snapshot?min=70');
  session.unfetched(false);
  assert.equal(session.refetch(100_000 + 2 * REFETCH_MS - 1), null);
  assert.equal(session.refetch(100_000 + 2 * REFETCH_MS), '/v1/rooms/r/snapshot?min=70', 'it failed, and is asked for again');
});

test('a cold load that failed is made good as soon as there is a stream', () => {
  const session = new Session('r', 10);
  session.unfetched(false);
  session.take([hello(10)]);
  assert.equal(session.refetch(1_000), '/v1/rooms/r/snapshot?min=0');
});

test('a room without a snapshot is not asked for one again', () => {
  const session = new Session('r', 10);
  session.take([{ type: 'snapshot_required', reason: 'too_old', cursor: 50, pseq: 0 }]);
  session.refetch(100_000);
  session.unfetched(true);
  assert.equal(session.refetchAt, null);
});

test('a cold load begins at the snapshot, before it where the reader was before, and never behind it', () => {
  const begin = (kept, asOf) => { const session = new Session('r', kept); session.fetched(asOf, 3, true); return session.cursor; };
  assert.equal(begin(0, 100), 100);
  assert.equal(begin(60, 100), 60);
  assert.equal(begin(140, 100), 100, 'a cache had an old one: what came since has to come again');
});

test('a pause ends with what the room says, not with an answer to one viewer', () => {
  const session = new Session('r', 10);
  session.take([{ type: 'feed_paused' }]);
  assert.equal(session.paused, true);
  session.take([{ type: 'publish_ack', event_id: 11 }, { type: 'pong' }, { type: 'error' }]);
  assert.equal(session.paused, true);
  session.take([{ type: 'counters' }]);
  assert.equal(session.paused, false);
});

test('what was passed over and a token that ends are told', () => {
  const session = new Session('r', 10);
  const taken = session.take([{ type: 'skipped', count: 3, from: 11, to: 14 }, { type: 'token_expiring', in_ms: 90_000 }]);
  assert.deepEqual(taken.reports, [{ kind: 'skipped', count: 3, from: 11, to: 14 }]);
  assert.equal(taken.renew_in_ms, 90_000);
});

test('an event of a kind that nobody knows yet is news like any other', () => {
  const session = new Session('r', 10);
  assert.deepEqual(ids(session.take([{ type: 'firework', event_id: 12 }])), [12]);
  assert.equal(session.cursor, 12);
});
