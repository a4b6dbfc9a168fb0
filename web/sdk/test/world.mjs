// A world for rooms to live in: a clock that is moved, chance from a seed, and a server whose transports do what networks do.
import { Room } from './built.mjs';

/** Numbers in [0, 1) from a seed (mulberry32). */
export function chance(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** Time that passes when it is told to. Timers fire in order, each followed by what was promised. */
export class Clock {
  now = 1_800_000_000_000;
  #timers = new Map();
  #next = 1;

  timer(fire, ms) {
    const id = this.#next;
    this.#next += 1;
    this.#timers.set(id, { at: this.now + Math.max(0, ms), fire, id });
    return id;
  }

  cancel(id) {
    this.#timers.delete(id);
  }

  async settle() {
    for (let n = 0; n < 24; n += 1) await null;
  }

  async run(ms) {
    const until = this.now + ms;
    await this.settle();
    for (;;) {
      let next = null;
      for (const timer of this.#timers.values()) {
        if (timer.at <= until && (next === null || timer.at < next.at || (timer.at === next.at && timer.id < next.id))) next = timer;
      }
      if (!next) break;
      this.#timers.delete(next.id);
      this.now = Math.max(this.now, next.at);
      next.fire();
      await this.settle();
    }
    this.now = until;
  }
}

/** A room's log, and what a server would answer of it. */
export class Server {
  log = [];
  head = 1_000;
  pseq = 0;
  /** Nothing up to here can be resumed from any more. */
  trimmed = 0;
  /** (from, to] of every time a stream did not go on where it was asked to. */
  jumps = [];
  snapshots = [];
  attempts = [];
  streams = new Set();
  #keys = new Map();

  constructor(clock, draw, roomId = 'r') {
    this.clock = clock;
    this.draw = draw;
    this.roomId = roomId;
    /** What each rung does: 'good', 'blocked', 'refused', 'deaf' (greets and falls silent), 'short' (soon dies), or a close code. */
    this.roads = { websocket: 'good', sse: 'good', poll: 'good' };
    this.api = 'good';
    this.delay = 30;
    /** How often a comment is lost on its way, and again as often its answer. */
    this.lossy = 0;
  }

  /** Adds an event; ids have holes. */
  add(type, members = {}) {
    this.head += 1 + Math.floor(this.draw() * 3);
    const e = { type, room_id: this.roomId, event_id: this.head, ...members };
    if (type !== 'comment') { this.pseq += 1; e.pseq = this.pseq; }
    this.log.push(e);
    for (const stream of this.streams) stream.give(e);
    return e;
  }

  comment(body, key) {
    const ts = new Date(this.clock.now).toISOString();
    return this.add('comment', { user: { id: 'u', display: 'U', badges: [] }, body, ts, ...(key && { client_msg_id: key }) });
  }

  goal(key, revision) {
    return this.add('score_event', { match_id: 'm', key, revision, kind: 'goal', state: 'confirmed', score: { home: revision, away: 0 }, minute: null });
  }

  pseqAt(cursor) {
    return this.log.findLast((e) => e.pseq !== undefined && e.event_id <= cursor)?.pseq ?? 0;
  }

  /** What a stream opened at `cursor` begins with. */
  greeting(cursor) {
    const known = cursor > 0 && cursor <= this.head && (cursor >= this.trimmed || !this.log.some((e) => e.event_id > cursor));
    const from = known ? cursor : this.head;
    const hello = {
      type: 'hello', room_id: this.roomId, session: 's', cursor: from, pseq: this.pseqAt(from), resumed: known, comments: 'all',
      config: { title: 'R', sampled: false }, counters: { likes: {}, viewers: 1, as_of_ts: '' }, pinned: [], banners: [],
    };
    if (known) return [hello, ...this.log.filter((e) => e.event_id > cursor)];
    this.jumps.push([cursor, from]);
    if (cursor === 0) return [hello];
    const url = `/v1/rooms/${this.roomId}/snapshot?min=${from}`;
    return [hello, { type: 'snapshot_required', room_id: this.roomId, snapshot_url: url, reason: cursor > this.head ? 'unknown_cursor' : 'too_old', cursor: from, pseq: this.pseqAt(from) }];
  }

  /** Takes a comment; the same key gets the first answer. */
  publish(op) {
    const known = this.#keys.get(op.client_msg_id);
    const e = known ?? this.comment(op.body, op.client_msg_id);
    this.#keys.set(op.client_msg_id, e);
    return { type: 'publish_ack', room_id: this.roomId, client_msg_id: op.client_msg_id, event_id: e.event_id, ...(known && { duplicate: true }) };
  }

  transport(way) {
    return { way, open: (opening, on) => new Wire(this, way, opening, on) };
  }

  /** The HTTP part. */
  fetch(url, init = {}) {
    const { pathname, searchParams } = new URL(url);
    return new Promise((resolve, reject) => {
      const { signal } = init;
      const roll = this.draw();
      if (this.api === 'blocked') return;
      this.clock.timer(() => {
        if (signal?.aborted) return;
        if (this.api === 'refused' || (this.api === 'flaky' && roll < 0.4)) { reject(new TypeError('fetch failed')); return; }
        const json = (status, body) => ({ ok: status < 400, status, headers: new Headers({ 'content-type': 'application/json' }), json: async () => body });
        if (pathname.endsWith('/snapshot')) {
          const min = searchParams.get('min');
          this.snapshots.push({ at: this.clock.now, min: min === null ? null : Number(min), asOf: this.head });
          resolve(json(200, this.snapshot()));
        } else if (pathname.endsWith('/comments')) {
          const ack = this.publish(JSON.parse(init.body));
          // The answer may be lost after it was done.
          if (this.api === 'flaky' && roll > 0.8) reject(new TypeError('fetch failed'));
          else resolve(json(200, ack));
        } else {
          resolve(json(404, { code: 'not_found' }));
        }
      }, this.delay);
    });
  }

  snapshot() {
    const scores = new Map();
    for (const e of this.log) if (e.type === 'score_event' && !((scores.get(e.key)?.revision ?? 0) >= e.revision)) scores.set(e.key, e);
    const shared = this.log.filter((e) => e.type === 'comment').slice(-50).map(({ client_msg_id: _, ...e }) => e);
    return {
      room_id: this.roomId, as_of_event_id: this.head, as_of_pseq: this.pseq, scores: [...scores.values()], recent_comments: shared,
      pinned: [], banners: [], config: { title: 'R', sampled: false }, counters: { likes: {}, viewers: 1, as_of_ts: '' },
    };
  }
}

/** One stream, with a network of its own. */
class Wire {
  constructor(server, way, opening, on) {
    Object.assign(this, { server, way, on });
    server.attempts.push({ at: server.clock.now, way, ...opening.attempted });
    const road = server.roads[way];
    const { draw, clock } = server;
    this.gone = false;
    this.deaf = false;
    this.last = clock.now;
    this.lastAnswer = clock.now;
    this.greeted = false;
    if (road === 'blocked') return;
    if (road === 'refused') { this.later(() => this.end({ code: 1006 })); return; }
    if (typeof road === 'object') {
      this.later(() => { if (way === 'websocket') this.on.events([{ type: 'close', ...road }]); this.end(road); });
      return;
    }
    this.later(() => {
      const greeting = server.greeting(opening.cursor);
      // A long-poll that goes on says no hello.
      const list = way === 'poll' && opening.cursor > 0 && greeting[0].resumed ? greeting.slice(1) : greeting;
      this.greeted = true;
      server.streams.add(this);
      this.hand(list);
      if (road === 'deaf') this.deaf = true;
      if (road === 'short') this.later(() => this.end({ code: 1006 }), 200 + draw() * 4_000);
    });
  }

  later(then, ms = this.server.delay * (0.5 + this.server.draw())) {
    // Bytes of one stream keep their order.
    this.last = Math.max(this.last, this.server.clock.now + ms);
    this.server.clock.timer(() => { if (!this.gone) then(); }, this.last - this.server.clock.now);
  }

  /** Answers to one viewer wait for nobody: what was said before may still be in a merge window. */
  answer(e) {
    this.lastAnswer = Math.max(this.lastAnswer, this.server.clock.now + this.server.delay);
    this.server.clock.timer(() => { if (!this.gone && !this.deaf) this.hand([e]); }, this.lastAnswer - this.server.clock.now);
  }

  hand(list) {
    this.on.events(list);
    if (this.way === 'poll' && !this.gone) this.on.advanced(Math.max(0, ...list.map((e) => e.event_id ?? e.cursor ?? 0)));
  }

  give(e) {
    if (this.deaf) return;
    this.later(() => { if (!this.deaf) this.hand([e]); }, this.server.delay + 200 * this.server.draw());
  }

  send(op) {
    if (this.gone || this.way !== 'websocket' || !this.greeted) return false;
    if (this.deaf) return true;
    if (op.op === 'ping') this.answer({ type: 'pong' });
    // An owner that goes away may take the answer with it, and the comment too.
    const fate = this.server.draw();
    if (op.op === 'publish' && fate > this.server.lossy) this.server.clock.timer(() => {
      if (this.deaf || this.gone) return;
      const ack = this.server.publish(op);
      if (fate > 2 * this.server.lossy) this.answer(ack);
    }, this.server.delay);
    return true;
  }

  /** Signs of life that a server gives by itself. */
  keepalive() {
    if (!this.deaf && !this.gone && this.way !== 'websocket') this.later(() => { if (!this.deaf) this.on.events([]); });
  }

  end(how) {
    if (this.gone) return;
    this.abandon();
    this.on.ended(how, this.greeted ? 'closed' : 'refused');
  }

  abandon() {
    this.gone = true;
    this.server.streams.delete(this);
  }
}

export const RUNGS = ['websocket', 'sse', 'poll'];

/** A server and its clock, from one seed. */
export function world(seed = 1) {
  const draw = chance(seed);
  const clock = new Clock();
  const server = new Server(clock, draw);
  return { draw, clock, server };
}

/** A room in that world. */
export function roomIn(server, draw, options = {}) {
  const { clock } = server;
  const env = {
    now: () => clock.now, random: draw, timer: (fire, ms) => clock.timer(fire, ms), cancel: (id) => clock.cancel(id),
    fetch: (url, init) => server.fetch(String(url), init), WebSocket: null, keeper: null, page: null, locks: null, channel: null, ...options.env,
  };
  const transports = Object.fromEntries(['websocket', 'sse', 'poll'].map((way) => [way, server.transport(way)]));
  return new Room({ url: 'http://server', room: server.roomId, transports, ...options, env });
}

/** A page that is shown, hidden, cut off and brought back. */
export class Page {
  isHidden = false;
  isOnline = true;
  #on = null;

  hidden() { return this.isHidden; }
  online() { return this.isOnline; }
  listen(on) { this.#on = on; return () => { this.#on = null; }; }
  hide() { this.isHidden = true; this.#on?.hid(); }
  show() { this.isHidden = false; this.#on?.shown(); }
  restore() { this.#on?.restored(); }
  cut() { this.isOnline = false; this.#on?.offline(); }
  join() { this.isOnline = true; this.#on?.online(); }
}

/** Web Locks and channels of one browser. */
export class Browser {
  #held = new Map();
  #waiting = new Map();
  #channels = new Map();

  get locks() {
    return { request: (name, options, held) => this.#request(name, options, held) };
  }

  #request(name, { ifAvailable, steal, signal }, held) {
    return new Promise((resolve, reject) => {
      const grant = () => {
        const holder = { reject };
        this.#held.set(name, holder);
        Promise.resolve(held({ name })).then((done) => {
          if (this.#held.get(name) !== holder) return;
          this.#held.delete(name);
          resolve(done);
          this.#waiting.get(name)?.shift()?.();
        });
      };
      // Nothing of it happens before the caller has returned.
      queueMicrotask(() => {
        if (signal?.aborted) { reject(new Error('AbortError')); return; }
        const holder = this.#held.get(name);
        if (steal) {
          this.#held.delete(name);
          holder?.reject(new Error('AbortError'));
          grant();
        } else if (!holder) grant();
        else if (ifAvailable) resolve(held(null));
        else {
          const waiting = this.#waiting.get(name) ?? this.#waiting.set(name, []).get(name);
          waiting.push(grant);
          signal?.addEventListener('abort', () => {
            const at = waiting.indexOf(grant);
            if (at >= 0) { waiting.splice(at, 1); reject(new Error('AbortError')); }
          });
        }
      });
    });
  }

  channel = (name) => {
    const all = this.#channels.get(name) ?? this.#channels.set(name, new Set()).get(name);
    const channel = {
      onmessage: null,
      deaf: false,
      postMessage: (message) => {
        const data = structuredClone(message);
        for (const other of all) if (other !== channel) queueMicrotask(() => { if (!other.deaf) other.onmessage?.({ data }); });
      },
      close: () => all.delete(channel),
    };
    all.add(channel);
    return channel;
  };

  /** A tab whose page does nothing any more, and holds its lock. */
  freeze(name, nth) {
    const channel = [...this.#channels.get(name)][nth];
    channel.deaf = true;
    channel.postMessage = () => {};
  }

  get channelNames() {
    return [...this.#channels.keys()];
  }
}
