// The layout alone, as scripts and under chance. `cargo xtask sdk` builds it and says where in BUILT.
import assert from 'node:assert/strict';
import path from 'node:path';
import test from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../..');
const built = (file) => import(pathToFileURL(path.join(process.env.BUILT ?? path.join(root, 'target/web'), 'danmaku/dist', file)));
const { Wall, RULES } = await built('layout.js');
const { directionOf, fitted, line, TEXT_MAX } = await built('content.js');

const SEEDS = 300;
const STAGE = { width: 800, height: RULES.laneHeight * 6 };

/** mulberry32: the same numbers for the same seed, in [0, 1). */
function chance(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const widthOf = (entry) => entry.what.width;
let ids = 0;
const entry = (width, rank = 'comment', mode = 'scroll') => ({ id: ids += 1, rank, mode, what: { width } });
const shown = (wall) => [...wall.shown()];

/** No two of a lane touch, everything is inside its lane, and nothing is counted twice or not at all. */
function holds(wall, now, seed) {
  const lanes = new Map();
  for (const placed of wall.shown()) {
    const key = `${placed.layer} ${placed.row}`;
    lanes.set(key, [...(lanes.get(key) ?? []), placed]);
  }
  for (const [key, all] of lanes) {
    const boxes = all.map((p) => [wall.x(p, now), wall.x(p, now) + p.width]).sort((a, b) => a[0] - b[0]);
    for (let n = 1; n < boxes.length; n += 1) {
      assert.ok(boxes[n][0] >= boxes[n - 1][1] - 1e-6, `seed ${seed}, lane ${key} at ${now}: ${boxes[n - 1]} touches ${boxes[n]}`);
    }
  }
  const { offered, placed, retracted, cleared, dropped } = wall.counts;
  assert.equal(offered, placed + retracted + cleared + dropped.paid + dropped.own + dropped.comment + wall.waiting, `seed ${seed}: the counts`);
  assert.ok(wall.waiting <= wall.rules.waitingMax, `seed ${seed}: what waits is bounded`);
}

test('no comment ever reaches the one before it, whatever its width, while lanes are held and the stage changes', () => {
  let overtakers = 0;
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    const draw = chance(seed);
    const between = (least, most) => least + draw() * (most - least);
    const wall = new Wall(STAGE, { paidLanes: Math.floor(draw() * 3), placedMax: 1 + Math.floor(draw() * 8), scrollMs: between(1000, 9000) }, draw() < 0.1);
    let now = 0;
    for (let n = 0; n < 400; n += 1) {
      now += draw() < 0.02 ? between(0, 20_000) : between(0, 60);
      for (let k = Math.floor(draw() * 4); k > 0; k -= 1) {
        const mode = ['scroll', 'scroll', 'scroll', 'top', 'bottom'][Math.floor(draw() * 5)];
        wall.offer(entry(between(10, draw() < 0.2 ? 3000 : 400), ['comment', 'comment', 'own', 'paid'][Math.floor(draw() * 4)], mode), now);
      }
      wall.step(now, widthOf);
      holds(wall, now, seed);
      const all = shown(wall);
      if (draw() < 0.1) wall.hold(draw() < 0.5 ? null : all[Math.floor(draw() * all.length)] ?? null, now);
      if (draw() < 0.01) wall.resize({ width: between(200, 2000), height: between(0, 400) });
      if (draw() < 0.01) wall.retract((_, id) => id % 3 === 0, 'a rule');
      if (draw() < 0.003) wall.clear(draw() < 0.2);
      overtakers += all.filter((p) => p.speed > 0.5).length;
    }
  }
  assert.ok(overtakers > 1000, 'there were faster ones that could have reached others');
});

test('between two steps nothing touches either: the lines are straight', () => {
  const wall = new Wall(STAGE);
  const draw = chance(7);
  for (let now = 0; now < 20_000; now += 16) {
    wall.offer(entry(20 + draw() * 900), now);
    wall.step(now, widthOf);
    for (let part = 1; part < 4; part += 1) holds(wall, now + part * 4, 7);
  }
});

test('a long one waits for the lane where it will not catch up', () => {
  const wall = new Wall({ width: 800, height: RULES.laneHeight }, { paidLanes: 0 });
  wall.offer(entry(100), 0);
  wall.step(0, widthOf);
  wall.offer(entry(1600, 'own'), 1500);
  assert.equal(wall.step(1500, widthOf).placed.length, 0, 'the end of the lane is free, but it is twice as fast');
  // It crosses in 8 s, as the first does: at 8 s its head may just be at the left edge with the gap kept.
  let came = 1500;
  while (wall.step(came, widthOf).placed.length === 0) came += 16;
  assert.ok(Math.abs(came - (8000 - (800 - RULES.gap) / (2400 / 8000))) <= 16, `it came at ${came}`);
});

test('what was paid for has the upper lanes, is drawn first, and takes any lane before others when those are full', () => {
  const wall = new Wall(STAGE, { placedMax: 100 });
  for (let n = 0; n < 6; n += 1) wall.offer(entry(300), 0);
  for (let n = 0; n < 2; n += 1) wall.offer(entry(300, 'paid'), 0);
  const { placed } = wall.step(0, widthOf);
  assert.deepEqual(placed.map((p) => [p.rank, p.row]), [['paid', 0], ['paid', 1], ['comment', 2], ['comment', 3], ['comment', 4], ['comment', 5]]);
  assert.deepEqual(shown(wall).slice(0, 2).map((p) => p.rank), ['paid', 'paid']);
});

test('over the budget the oldest ordinary one goes first, and one that was paid for last', () => {
  const wall = new Wall({ width: 800, height: 0 }, { waitingMax: 4 });
  for (const rank of ['paid', 'comment', 'own', 'comment']) wall.offer(entry(100, rank), 0);
  const after = (rank) => { wall.offer(entry(100, rank), 0); return { ...wall.counts.dropped }; };
  assert.deepEqual(after('paid'), { paid: 0, own: 0, comment: 1 });
  assert.deepEqual(after('own'), { paid: 0, own: 0, comment: 2 });
  assert.deepEqual(after('comment'), { paid: 0, own: 0, comment: 3 }, 'a new ordinary one goes before them');
  assert.deepEqual(after('paid'), { paid: 0, own: 1, comment: 3 });
  assert.deepEqual(after('paid'), { paid: 0, own: 2, comment: 3 });
  assert.deepEqual(after('paid'), { paid: 1, own: 2, comment: 3 });
});

test('in chance too nothing paid or own is dropped while an ordinary one waits', () => {
  for (let seed = 1; seed <= SEEDS; seed += 1) {
    const draw = chance(seed);
    const wall = new Wall(STAGE, { waitingMax: 8, visibleMax: 6 });
    const waits = new Set();
    for (let now = 0; now < 4000; now += 16) {
      const one = entry(100 + draw() * 300, ['comment', 'own', 'paid'][Math.floor(draw() * 3)]);
      const before = { ...wall.counts.dropped };
      const ordinary = [...waits].filter((e) => e.rank === 'comment' && wall.has(e.id)).length;
      waits.add(one);
      wall.offer(one, now);
      const { paid, own } = wall.counts.dropped;
      if (ordinary > 0) assert.deepEqual([paid, own], [before.paid, before.own], `seed ${seed} at ${now}`);
      if (one.rank === 'comment') assert.deepEqual([paid, own], [before.paid, before.own], `seed ${seed}: for an ordinary one`);
      for (const p of wall.step(now, widthOf).placed) for (const e of waits) if (e.id === p.id) waits.delete(e);
    }
    assert.ok(wall.counts.dropped.comment > 0, 'the budget was met');
  }
});

test('ordinary comments keep within what may be shown at once, and what waited too long is counted', () => {
  const wall = new Wall({ width: 800, height: RULES.laneHeight * 50 }, { visibleMax: 10, placedMax: 100 });
  for (let n = 0; n < 30; n += 1) wall.offer(entry(50), 0);
  wall.step(0, widthOf);
  assert.equal(wall.visible, 10);
  wall.offer(entry(50, 'own'), 0);
  wall.offer(entry(50, 'paid'), 0);
  wall.step(16, widthOf);
  assert.equal(wall.visible, 12, 'own and paid come all the same');
  wall.step(RULES.waitMsMax + 1, widthOf);
  assert.deepEqual([wall.waiting, wall.counts.dropped.comment], [0, 20]);
});

test('one step lets in no more than can be painted in a frame', () => {
  const wall = new Wall({ width: 800, height: RULES.laneHeight * 50 });
  for (let n = 0; n < 30; n += 1) wall.offer(entry(50), 0);
  assert.equal(wall.step(0, widthOf).placed.length, RULES.placedMax);
  assert.equal(wall.step(16, widthOf).placed.length, RULES.placedMax);
});

test('what stands is centred below the paid lanes, upper and lower half apart, and goes when its time is over', () => {
  const wall = new Wall(STAGE, { placedMax: 100 });
  for (let n = 0; n < 4; n += 1) wall.offer(entry(200, 'comment', n < 2 ? 'top' : 'bottom'), 0);
  const { placed } = wall.step(0, widthOf);
  assert.deepEqual(placed.map((p) => [p.layer, wall.x(p, 0), wall.y(p) / RULES.laneHeight]), [['top', 300, 1], ['top', 300, 2], ['bottom', 300, 5], ['bottom', 300, 4]]);
  wall.offer(entry(900, 'comment', 'top'), 10);
  assert.equal(wall.step(10, widthOf).placed[0].layer, 'road', 'what is too wide to stand moves');
  assert.equal(wall.step(RULES.fixedMs, widthOf).gone.length, 4);
});

test('a held lane stands still with all that is on it, the others go on, and it goes on where it was', () => {
  const wall = new Wall(STAGE, { placedMax: 10 });
  for (let n = 0; n < 2; n += 1) wall.offer(entry(200), 0);
  const [a, b] = wall.step(0, widthOf).placed;
  assert.equal(wall.at(wall.x(a, 2000) + 5, wall.y(a) + 5, 2000), a);
  assert.equal(wall.at(5, wall.y(a) + 5, 2000), null);
  const before = wall.x(a, 2000);
  assert.ok(wall.hold(a, 2000) && !wall.hold(a, 2010) && wall.isHeld(a) && !wall.isHeld(b));
  for (let n = 0; n < 6; n += 1) wall.offer(entry(200, 'own'), 8500);
  const came = wall.step(9000, widthOf).placed;
  assert.deepEqual(came.map((p) => p.row), [2, 3, 4, 5], 'nothing is let into a lane that stands');
  assert.equal(wall.x(a, 9000), before);
  wall.clear();
  wall.offer(entry(200), 9000);
  const [c] = wall.step(9000, widthOf).placed;
  wall.hold(c, 11_000);
  wall.step(90_000, widthOf);
  assert.ok(wall.hold(null, 90_000));
  wall.step(90_000 + 5999, widthOf);
  assert.deepEqual(shown(wall), [c]);
  assert.equal(wall.step(90_000 + 6000, widthOf).gone[0], c);
});

test('what is taken back keeps its place, what waits for one does not come', () => {
  const wall = new Wall({ width: 800, height: RULES.laneHeight * 3 }, { placedMax: 10 });
  const all = [0, 1, 2, 3].map(() => entry(200));
  for (const e of all) wall.offer(e, 0);
  wall.step(0, widthOf);
  const [first] = shown(wall);
  const x = wall.x(first, 1000);
  const hit = wall.retract((_, id) => id === first.id || id === all[3].id, 'spam');
  assert.deepEqual(hit.map((p) => [p.id, p.removed]), [[first.id, 'spam']]);
  assert.deepEqual([wall.x(first, 1000), first.width, wall.counts.retracted], [x, 200, 1]);
  assert.deepEqual(wall.retract(() => true, '').map((p) => p.id), shown(wall).slice(1).map((p) => p.id), 'a reason that stands is not replaced');
});

test('a gift that goes on keeps its box with other numbers, whether it waits or is shown', () => {
  const wall = new Wall(STAGE, { placedMax: 1 });
  const [a, b] = [entry(100, 'paid'), entry(120, 'paid')];
  wall.offer(a, 0);
  wall.offer(b, 0);
  assert.ok(!wall.offer(a, 1), 'it is there already');
  const [one] = wall.step(0, widthOf).placed;
  assert.equal(wall.update(a.id, { width: 300 }), one);
  assert.deepEqual([one.width, one.what.width], [100, 300]);
  assert.equal(wall.update(b.id, { width: 140 }), null);
  assert.equal(wall.step(16, widthOf).placed[0].width, 140);
  assert.equal(wall.update(99_999_999, { width: 1 }), null);
});

test('for readers who want no motion each lane has one comment that stands', () => {
  const wall = new Wall(STAGE, { placedMax: 100 }, true);
  for (let n = 0; n < 9; n += 1) wall.offer(entry(200, n === 0 ? 'paid' : 'comment'), 0);
  const { placed } = wall.step(0, widthOf);
  assert.deepEqual(placed.map((p) => p.row), [0, 1, 2, 3, 4, 5]);
  assert.ok(placed.every((p) => wall.x(p, 0) === RULES.gap && wall.x(p, 3000) === RULES.gap));
  wall.offer(entry(200), RULES.fixedMs);
  assert.equal(wall.step(RULES.fixedMs, widthOf).gone.length, 6);
});

test('a clock that goes back moves nothing back', () => {
  const wall = new Wall(STAGE);
  wall.offer(entry(100), 0);
  const [one] = wall.step(1000, widthOf).placed;
  wall.step(2000, widthOf);
  assert.equal(wall.x(one, 1500), wall.x(one, 2000));
});

test('a text is brought to one line and cut between characters', () => {
  const family = '👨‍👩‍👧‍👦';
  assert.equal(line(' two\n lines\u2029\tand more '), 'two lines and more');
  assert.equal(line(family.repeat(TEXT_MAX)), family.repeat(TEXT_MAX));
  assert.equal(line(family.repeat(TEXT_MAX + 1)), `${family.repeat(TEXT_MAX)}…`);
  const measure = (text) => [...new Intl.Segmenter().segment(text)].length * 10;
  assert.equal(fitted(family.repeat(9), 90, measure), family.repeat(9));
  assert.equal(fitted(family.repeat(9), 50, measure), `${family.repeat(4)}…`);
  assert.equal(fitted('abc', 0, measure), '…');
});

test('a text runs as its first letter does', () => {
  for (const text of ['hello', '123 abc مرحبا', '👍🏽', '', 'がんばれ', '한국', '- ünder']) assert.equal(directionOf(text), 'ltr', text);
  for (const text of ['مرحبا', '12:30 שלום abc', '👍 ܫܠܡܐ', '𞤀𞤣𞤢𞤥', '«ﷲ»']) assert.equal(directionOf(text), 'rtl', text);
});
