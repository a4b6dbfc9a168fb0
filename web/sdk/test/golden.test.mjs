// The frames that the Rust tests hold the server to, byte for byte: the client takes each of them.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { Session, Store, rangeOf, root, sseReader } from './built.mjs';

const folder = path.join(root, 'crates/wire/tests/golden/events');
const frames = Object.fromEntries(fs.readdirSync(folder).sort().map((name) => [name.replace('.json', ''), fs.readFileSync(path.join(folder, name), 'utf8').trim()]));
const event = (name) => JSON.parse(frames[name]);
const AT = Date.parse('2026-05-17T20:15:00Z');

/** A store that was told these frames. */
function told(...names) {
  const store = new Store('match:2022-final');
  for (const name of names) store.apply(event(name), AT);
  return store;
}

test('there are frames of every event', () => {
  assert.ok(Object.keys(frames).length >= 60, `${Object.keys(frames).length} frames`);
});

test('session and store take every frame there is', () => {
  const session = new Session('match:2022-final');
  const store = new Store('match:2022-final');
  for (const name of Object.keys(frames)) {
    const taken = session.take([event(name)]);
    for (const e of taken.events) store.apply(e, AT);
  }
});

test('every frame comes whole out of an SSE stream, however it is cut', () => {
  const text = `: hello\n\n${Object.values(frames).map((frame, n) => `event: x\r\nid: ${n}\r\ndata: ${frame}\r\n\r\n`).join('')}`;
  for (const size of [1, 7, 64, 4096, text.length]) {
    const read = sseReader();
    const got = [];
    for (let at = 0; at < text.length; at += size) got.push(...read(text.slice(at, at + size)));
    assert.deepEqual(got, Object.values(frames), `in pieces of ${size}`);
  }
});

test('what a room asks is what was said last, and what a new hello does not say is not asked', () => {
  const store = told('hello_asks');
  assert.deepEqual([store.config.emote_only, store.config.unique_comment, store.config.members_only], [true, true, 'sub']);
  store.apply({ ...event('config_asks_nobody'), event_id: 2 ** 50 }, AT);
  assert.deepEqual([store.config.emote_only, store.config.members_only], [true, null]);
  store.apply(event('hello'), AT);
  assert.deepEqual([store.config.emote_only, store.config.members_only], [undefined, undefined]);
});

test('a comment stands with its author, its text as it is and what it answers', () => {
  const [line] = told('comment').entries;
  assert.equal(line.user.display, 'Ada "the" Countess');
  assert.equal(line.body, event('comment').body);
  assert.ok(line.body.startsWith('no way 😀\n<b>'), line.body);
  assert.deepEqual(line.parent, { id: 219558728171521 });
  assert.equal(line.mine, false);
});

test('the author\'s copy is its own, also when the shared one came first', () => {
  const store = told('comment', 'comment_own');
  assert.equal(store.entries.length, 1);
  assert.equal(store.entries[0].mine, true);
  store.apply(event('comment'), AT);
  assert.equal(store.entries[0].mine, true, 'a shared copy takes nothing away');
});

test('a retract leaves a slip with its reason where the comment was', () => {
  const store = told('comment', 'comment_bare', 'retract_event');
  assert.deepEqual(store.entries.map((e) => [e.id, e.retracted, e.body, e.reason]), [
    [219558728171522, true, '', 'policy.toxicity'], [219558728171523, false, 'x', undefined]]);
});

test('a retract that comes first hides what comes later', () => {
  for (const [first, id] of [['retract_event', 219558728171522], ['retract_user', 219558728171522], ['retract_all', 219558728171522], ['retract_since', 219558728171522]]) {
    const store = told(first, 'comment');
    const line = store.comment(id);
    assert.equal(line.retracted, true, first);
    assert.equal(line.body, '', first);
  }
});

test('a retract of a user does not mean what it says later', () => {
  const store = told('retract_user', 'comment_approved');
  assert.equal(store.entries[0].retracted, false);
});

test('of one score event the highest revision counts, in any order', () => {
  for (const names of [['score_event', 'score_event_late', 'score_event_goes_on'], ['score_event_goes_on', 'score_event_late', 'score_event']]) {
    const store = told(...names);
    assert.deepEqual(store.scoreEvents.map((s) => s.revision), [3]);
  }
  assert.deepEqual(told('score_event').scores[0].score, { home: 3, away: 2 });
  assert.deepEqual(told('score_event', 'score_event_late').scores, [], 'a withdrawn one gives no score');
});

test('a combo is one line with its newest totals', () => {
  const store = told('gift', 'gift_combo', 'gift_combo_ended');
  assert.equal(store.entries.length, 1);
  assert.equal(store.entries[0].gift.count, 36);
});

test('counters keep what is the viewer\'s own', () => {
  const store = told('counters');
  assert.equal(store.counters.keep_fraction, 0.00002);
  store.snapshot({ room_id: 'match:2022-final', as_of_event_id: 1, as_of_pseq: 0, scores: [], recent_comments: [], pinned: [], config: { title: 'x' }, banners: [],
    counters: { likes: { heart: 3 }, viewers: 5, keep_fraction: 1, as_of_ts: '' } });
  assert.equal(store.counters.keep_fraction, 0.00002);
  assert.equal(store.counters.likes.heart, 12, 'a total is not taken back');
});

test('banners stand until they end', () => {
  const store = told('banner', 'banner_of_an_operator');
  assert.equal(store.banners(AT).length, 2);
  store.apply(event('banner_ended'), AT);
  assert.deepEqual(store.banners(AT).map((b) => b.item), ['rocket']);
  assert.equal(store.banners(AT + 60_000).length, 0);
});

test('every close code has its range', () => {
  const ranges = Object.keys(frames).filter((name) => name.startsWith('close_')).map((name) => [event(name).code, rangeOf(event(name).code)]);
  assert.deepEqual(ranges.filter(([, range]) => range === 'stop').map(([code]) => code), [4000, 4003, 4004, 4009, 4010, 4051]);
  assert.deepEqual(ranges.filter(([, range]) => range === 'wait').map(([code]) => code), [4101, 4112, 4129, 4150, 4153]);
  assert.deepEqual(ranges.filter(([, range]) => range === 'resume').map(([code]) => code), [4200, 4201]);
});
