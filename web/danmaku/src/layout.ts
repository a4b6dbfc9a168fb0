// Where each comment of a wall is at each moment. No DOM, no clock, no chance: times and widths are passed in.
//
// The wall is cut into lanes, like a road. A comment enters a lane at its right end and crosses it in the same time as every
// other, so a longer one is faster. It is let in when the one before it has left a gap, and only if it will not catch up with
// that one before it is gone: two straight lines that do not touch at both ends of the time they share do not touch in between.
// Each lane has a clock of its own, which stands still while the reader holds the lane: what holds for the lane's time holds
// whenever and however long it is held. Comments that stand (`top`, `bottom`) have lanes of their own over the road.
//
// What the wall cannot take waits a moment, and what waits in vain is dropped and counted: ordinary comments before the
// reader's own, and those before what was paid for.

export type Mode = 'scroll' | 'top' | 'bottom';

/** Who goes first, and is dropped last: `paid`, then `own`, then `comment`. */
export type Rank = 'paid' | 'own' | 'comment';

export interface Entry<T> {
  /** Unique among what waits and is shown. */
  readonly id: string | number;
  readonly rank: Rank;
  readonly mode: Mode;
  readonly what: T;
}

/** In CSS pixels. */
export interface Stage {
  readonly width: number;
  readonly height: number;
}

export interface Rules {
  /** CSS pixels. */
  readonly laneHeight: number;
  /** CSS pixels that stay free between two comments of a lane. */
  readonly gap: number;
  /** How long a comment takes from edge to edge. */
  readonly scrollMs: number;
  /** How long a comment stands. */
  readonly fixedMs: number;
  /** Lanes at the top that are for what was paid for; at most a third of all. */
  readonly paidLanes: number;
  /** Part of the height that is used, above 0 to 1. */
  readonly density: number;
  /** Ordinary comments that are let in while fewer than so many entries are shown. */
  readonly visibleMax: number;
  /** Entries that wait for a lane. */
  readonly waitingMax: number;
  /** How long an ordinary comment waits. */
  readonly waitMsMax: number;
  /** Entries that are let in at one step: each is measured and drawn once, in the time of one frame. */
  readonly placedMax: number;
}

export const RULES: Rules = {
  laneHeight: 34, gap: 24, scrollMs: 8000, fixedMs: 4000, paidLanes: 1, density: 1,
  // Forty lanes of five comments each.
  visibleMax: 200, waitingMax: 64, waitMsMax: 1500, placedMax: 4,
};

type Layer = 'road' | 'top' | 'bottom';

export interface Placed<T> {
  readonly id: string | number;
  readonly rank: Rank;
  readonly layer: Layer;
  /** From the top; of `bottom`, from the bottom. */
  readonly row: number;
  /** CSS pixels; kept for life, whatever is shown inside. */
  readonly width: number;
  /** The lane's time at which it came and goes. */
  readonly since: number;
  readonly until: number;
  /** Its left edge at `since`, and CSS pixels per ms to the left. */
  readonly from: number;
  readonly speed: number;
  what: T;
  /** Why it is not shown any more, or that no reason was given (''); `null` while it is shown. */
  removed: string | null;
}

export interface Counts {
  offered: number;
  placed: number;
  /** Retracted while they waited. */
  retracted: number;
  /** Waiting when the wall was cleared. */
  cleared: number;
  dropped: Record<Rank, number>;
}

interface Lane<T> {
  /** All the time it was held so far, and since when it is held now. */
  heldMs: number;
  heldSince: number | null;
  last: Placed<T> | null;
}

interface Waiting<T> {
  entry: Entry<T>;
  since: number;
  /** Measured once, when it is first its turn. */
  width?: number;
}

const RANKS: readonly Rank[] = ['paid', 'own', 'comment'];

export class Wall<T> {
  readonly counts: Counts = { offered: 0, placed: 0, retracted: 0, cleared: 0, dropped: { paid: 0, own: 0, comment: 0 } };
  readonly rules: Rules;
  #stage: Stage;
  #still: boolean;
  #now = -Infinity;
  #lanes: Record<Layer, Lane<T>[]> = { road: [], top: [], bottom: [] };
  #waiting: Record<Rank, Waiting<T>[]> = { paid: [], own: [], comment: [] };
  #known = new Set<string | number>();
  /** In the order in which they are drawn: what was paid for first. */
  #shown: { paid: Placed<T>[]; road: Placed<T>[]; fixed: Placed<T>[] } = { paid: [], road: [], fixed: [] };
  #held: Lane<T> | null = null;

  /** `still`: nothing moves; a comment stands at the beginning of its lane instead. */
  constructor(stage: Stage, rules: Partial<Rules> = {}, still = false) {
    this.rules = { ...RULES, ...rules };
    this.#stage = stage;
    this.#still = still;
  }

  get still(): boolean {
    return this.#still;
  }

  get stage(): Stage {
    return this.#stage;
  }

  /** Lanes that the stage has room for. */
  get rows(): number {
    return Math.max(0, Math.floor((this.#stage.height * this.rules.density) / this.rules.laneHeight));
  }

  get waiting(): number {
    return RANKS.reduce((sum, rank) => sum + this.#waiting[rank].length, 0);
  }

  get visible(): number {
    return this.#shown.paid.length + this.#shown.road.length + this.#shown.fixed.length;
  }

  /** All that is shown, in the order in which it is drawn. */
  * shown(): Generator<Placed<T>, void, undefined> {
    yield* this.#shown.paid;
    yield* this.#shown.road;
    yield* this.#shown.fixed;
  }

  /**
   * Takes an entry to be shown as soon as there is room. `false` when one of its id waits or is shown. Only the age of what waits is
   * counted from `now`: it may lie between two steps, and does not move what is shown.
   */
  offer(entry: Entry<T>, now: number): boolean {
    if (this.#known.has(entry.id)) return false;
    this.#known.add(entry.id);
    this.counts.offered += 1;
    this.#waiting[entry.rank].push({ entry, since: now });
    if (this.waiting > this.rules.waitingMax) this.#drop();
    return true;
  }

  /** Lets go of what is over, then lets in what there is room for. `widthOf`: CSS pixels of an entry. Gives both. */
  step(now: number, widthOf: (entry: Entry<T>) => number): { placed: Placed<T>[]; gone: Placed<T>[] } {
    now = this.#at(now);
    const gone = this.#expire(now);
    this.#tooLate(now);
    const placed: Placed<T>[] = [];
    for (const rank of RANKS) {
      const waiting = this.#waiting[rank];
      const left: Waiting<T>[] = [];
      for (let n = 0; n < waiting.length; n += 1) {
        const next = waiting[n] as Waiting<T>;
        const full = placed.length >= this.rules.placedMax || (rank === 'comment' && this.visible >= this.rules.visibleMax);
        const one = full ? null : this.#place(next, now, widthOf);
        if (one) placed.push(one);
        else left.push(next);
        // Where no lane's end is free those behind need not be tried.
        if (full || (!one && !this.#enterable(next.entry, now))) { left.push(...waiting.slice(n + 1)); break; }
      }
      this.#waiting[rank] = left;
    }
    return { placed, gone };
  }

  /** The left edge of what is shown, in CSS pixels. */
  x(placed: Placed<T>, now: number): number {
    if (placed.layer !== 'road') return Math.max(0, (this.#stage.width - placed.width) / 2);
    return placed.from - placed.speed * (this.laneTime(placed, now) - placed.since);
  }

  /** The top edge of what is shown, in CSS pixels. */
  y(placed: Placed<T>): number {
    const { laneHeight } = this.rules;
    return placed.layer === 'bottom' ? this.#stage.height - (placed.row + 1) * laneHeight : placed.row * laneHeight;
  }

  /** The time of the lane in which something is shown: it stands still while the lane is held. */
  laneTime(placed: Placed<T>, now: number): number {
    return timeOf(this.#lane(placed.layer, placed.row), this.#at(now));
  }

  /** What is shown at a point of the stage; what stands lies over what moves. */
  at(x: number, y: number, now: number): Placed<T> | null {
    const hit = (placed: Placed<T>): boolean => {
      const [left, top] = [this.x(placed, now), this.y(placed)];
      return x >= left && x < left + placed.width && y >= top && y < top + this.rules.laneHeight;
    };
    return this.#shown.fixed.find(hit) ?? this.#shown.road.find(hit) ?? this.#shown.paid.find(hit) ?? null;
  }

  /** Stops the lane of what is shown, and lets any other go on; `null`: all go on. Whether that changed anything. */
  hold(placed: Placed<T> | null, now: number): boolean {
    now = this.#at(now);
    const lane = placed ? this.#lane(placed.layer, placed.row) : null;
    if (lane === this.#held) return false;
    if (this.#held) {
      this.#held.heldMs += now - (this.#held.heldSince ?? now);
      this.#held.heldSince = null;
    }
    this.#held = lane;
    if (lane) lane.heldSince = now;
    return true;
  }

  isHeld(placed: Placed<T>): boolean {
    return this.#held !== null && this.#lane(placed.layer, placed.row) === this.#held;
  }

  /** Gives what waits or is shown under `id` another content. Its box stays as it is. */
  update(id: string | number, what: T): Placed<T> | null {
    for (const rank of RANKS) {
      const at = this.#waiting[rank].findIndex((w) => w.entry.id === id);
      const found = this.#waiting[rank][at];
      if (found) this.#waiting[rank][at] = { entry: { ...found.entry, what }, since: found.since };
    }
    for (const placed of this.shown()) {
      if (placed.id !== id || placed.removed !== null) continue;
      placed.what = what;
      return placed;
    }
    return null;
  }

  /** Whether an entry of this id waits or is shown. */
  has(id: string | number): boolean {
    return this.#known.has(id);
  }

  /** Takes back what `hits`: what is shown keeps its place, what waits will not come. Gives what is shown. */
  retract(hits: (what: T, id: string | number) => boolean, reason: string): Placed<T>[] {
    for (const rank of RANKS) {
      this.#waiting[rank] = this.#waiting[rank].filter(({ entry }) => {
        if (!hits(entry.what, entry.id)) return true;
        this.counts.retracted += 1;
        this.#known.delete(entry.id);
        return false;
      });
    }
    const all: Placed<T>[] = [];
    for (const placed of this.shown()) {
      if (placed.removed !== null || !hits(placed.what, placed.id)) continue;
      placed.removed = reason;
      all.push(placed);
    }
    return all;
  }

  /** What is under way goes on as it was; lanes that the stage has no room for take nothing any more. */
  resize(stage: Stage): void {
    this.#stage = stage;
  }

  /** The wall is empty; with `still`, it moves from now on or does not. */
  clear(still = this.#still): void {
    this.counts.cleared += this.waiting;
    this.#waiting = { paid: [], own: [], comment: [] };
    this.#shown = { paid: [], road: [], fixed: [] };
    this.#lanes = { road: [], top: [], bottom: [] };
    this.#known.clear();
    this.#held = null;
    this.#still = still;
  }

  /** Time never goes back. */
  #at(now: number): number {
    this.#now = Math.max(this.#now, now);
    return this.#now;
  }

  #lane(layer: Layer, row: number): Lane<T> {
    return (this.#lanes[layer][row] ??= { heldMs: 0, heldSince: null, last: null });
  }

  #expire(now: number): Placed<T>[] {
    const gone: Placed<T>[] = [];
    const stays = (placed: Placed<T>): boolean => {
      const lane = this.#lane(placed.layer, placed.row);
      if (timeOf(lane, now) < placed.until) return true;
      if (lane.last === placed) lane.last = null;
      this.#known.delete(placed.id);
      gone.push(placed);
      return false;
    };
    const { paid, road, fixed } = this.#shown;
    this.#shown = { paid: paid.filter(stays), road: road.filter(stays), fixed: fixed.filter(stays) };
    return gone;
  }

  #tooLate(now: number): void {
    const waiting = this.#waiting.comment;
    // In the order in which they came, so the late ones are in front.
    const inTime = waiting.findIndex((w) => now - w.since <= this.rules.waitMsMax);
    const late = waiting.splice(0, inTime === -1 ? waiting.length : inTime);
    for (const { entry } of late) this.#known.delete(entry.id);
    this.counts.dropped.comment += late.length;
  }

  /** The oldest of the lowest rank that waits. */
  #drop(): void {
    const rank = RANKS.findLast((r) => this.#waiting[r].length > 0);
    const first = rank && this.#waiting[rank].shift();
    if (!rank || !first) return;
    this.#known.delete(first.entry.id);
    this.counts.dropped[rank] += 1;
  }

  /** The lanes of a rank, best first, as [first, end). */
  #road(rank: Rank): [number, number][] {
    const { rows } = this;
    const paid = Math.min(this.rules.paidLanes, Math.floor(rows / 3));
    return rank === 'paid' ? [[0, paid], [paid, rows]] : [[paid, rows]];
  }

  /** Lanes for what stands at one edge: below those for what was paid for, and no more than half of the rest. */
  #fixedRows(layer: 'top' | 'bottom'): [number, number] {
    const [first, end] = this.#road('comment')[0] as [number, number];
    const half = Math.floor((end - first) / 2);
    return layer === 'top' ? [first, first + half] : [0, half];
  }

  /** Whether some lane's end is free, so that a narrower one might be let in where this was not. */
  #enterable(entry: Entry<T>, now: number): boolean {
    for (const [first, end] of this.#road(entry.rank)) {
      for (let row = first; row < end; row += 1) {
        if (this.#isFree(this.#lane('road', row), now)) return true;
      }
    }
    // What stands has lanes of its own: those behind it may have others.
    return entry.mode !== 'scroll';
  }

  #isFree(lane: Lane<T>, now: number): boolean {
    const { last } = lane;
    if (lane.heldSince !== null) return false;
    if (last === null) return true;
    if (this.#still) return false;
    const tail = last.from - last.speed * (timeOf(lane, now) - last.since) + last.width;
    return tail + this.rules.gap <= this.#stage.width;
  }

  #place(next: Waiting<T>, now: number, widthOf: (entry: Entry<T>) => number): Placed<T> | null {
    const { entry } = next;
    if (entry.mode !== 'scroll') {
      const [first, end] = this.#fixedRows(entry.mode);
      const width = (next.width ??= widthOf(entry));
      // What is too wide to stand, or has nowhere to, moves.
      if (width <= this.#stage.width && end > first) {
        for (let row = first; row < end; row += 1) {
          const lane = this.#lane(entry.mode, row);
          if (lane.last === null) return this.#put(entry, entry.mode, row, width, timeOf(lane, now), this.rules.fixedMs, 0, 0);
        }
        return null;
      }
    }
    for (const [first, end] of this.#road(entry.rank)) {
      for (let row = first; row < end; row += 1) {
        const lane = this.#lane('road', row);
        if (!this.#isFree(lane, now)) continue;
        const width = (next.width ??= widthOf(entry));
        const time = timeOf(lane, now);
        if (this.#still) return this.#put(entry, 'road', row, width, time, this.rules.fixedMs, this.rules.gap, 0);
        const speed = (this.#stage.width + width) / this.rules.scrollMs;
        const { last } = lane;
        // Where its head will be when the tail of the one before it leaves the stage.
        const head = last === null ? Infinity : this.#stage.width - speed * (last.until - time);
        if (head >= this.rules.gap) return this.#put(entry, 'road', row, width, time, this.rules.scrollMs, this.#stage.width, speed);
      }
    }
    return null;
  }

  #put(entry: Entry<T>, layer: Layer, row: number, width: number, since: number, ms: number, from: number, speed: number): Placed<T> {
    const { id, rank, what } = entry;
    const placed: Placed<T> = { id, rank, layer, row, width, since, until: since + ms, from, speed, what, removed: null };
    this.#lane(layer, row).last = placed;
    (layer === 'road' ? rank === 'paid' ? this.#shown.paid : this.#shown.road : this.#shown.fixed).push(placed);
    this.counts.placed += 1;
    return placed;
  }
}

function timeOf<T>(lane: Lane<T>, now: number): number {
  return (lane.heldSince ?? now) - lane.heldMs;
}
