// A room that is watched: the shell around the pure parts. It opens streams as the ladder says, gives what they tell to the session and
// what is news to the store, and keeps one list of deadlines. Everything it knows of the world comes through `Env`.
import { backoff } from './backoff.ts';
import { claimsOf } from './claims.ts';
import type { Env } from './env.ts';
import { here } from './env.ts';
import { ask, post } from './http.ts';
import { Ladder, rangeOf } from './ladder.ts';
import type { Attempt } from './ladder.ts';
import type { RoomEvents, RoomOptions, Status, TokenReason } from './options.ts';
import { pollTransport } from './poll.ts';
import { Session } from './session.ts';
import { sseTransport } from './sse.ts';
import { ANSWER_MS, Store } from './store.ts';
import { Ring, Tabs, tabTransport } from './tabs.ts';
import type { Said } from './tabs.ts';
import type { Hearing, Stream, Transport } from './transport.ts';
import { urlOf } from './transport.ts';
import type { AnyEvent, Ended, Failure, Op, Rung, Snapshot, Way } from './types.ts';
import type { Endpoints, User } from './wire.ts';
import { websocketTransport } from './websocket.ts';

/** An attempt that was not greeted within this has failed. */
const GREET_MS = 10_000;
/** Nothing heard for so long on a stream that can be asked: it is asked, and has so long for a sign. */
const ASK_AFTER_MS = 20_000;
const SIGN_MS = 15_000;
/** A stream that cannot be asked gives a sign every 15 s (SSE), or an answer every 25 s (long-poll). */
const SILENCE_MS = 45_000;
/** A timer that comes later than this was held back: what waits in the queue behind it is heard first. */
const LATE_MS = 2_000;
/** A cold load that takes longer does not hold the stream up. */
const COLD_MS = 4_000;
/** Between two writes of the cursor. */
const KEEP_MS = 1_000;
/** Taps of a moment go together, at most 50 of them. */
const LIKES_TOGETHER_MS = 250;
const LIKES_MAX = 50;
/** Between two attempts to renew a token: twice as long each time, and up to as much again. */
const RENEW_MS_MIN = 2_000;
const RENEW_MS_MAX = 60_000;
/** What a timer can hold: 24 days. A longer one would fire at once. */
const TIMER_MS_MAX = 2 ** 31 - 1;
const FOLLOWS_MAX = 200;

/** A stream, and what is known of it. */
interface Conn {
  way: Way;
  stream: Stream | null;
  greeted: boolean;
  openedAt: number;
  heardAt: number;
  askedAt: number | null;
  session: string | null;
  base: string;
}

/** Whether it can be asked for a sign of life. */
const answers = ({ way }: Conn): boolean => way === 'websocket' || way === 'tab';

/** A room that is watched: its stream and its picture. */
export class Room {
  readonly id: string;
  /** What the room looks like. */
  readonly store: Store;
  #options: RoomOptions;
  #env: Env;
  #base: string;
  #session: Session;
  #ladder: Ladder;
  #transports: Record<Way, Transport | null>;
  #tabs: Tabs | null = null;
  #tabsOf: string | null = null;
  #ring: Ring | null = null;
  #hearTab: ((said: Said) => void) | null = null;
  #leaderStatus: Status | null = null;
  #role: 'alone' | 'leader' | 'follower' = 'alone';
  #tab: string;
  #sseFrom: number;
  #main: Conn | null = null;
  #probe: Conn | null = null;
  #running = false;
  #generation = 0;
  #opening = false;
  #openAt: number | null = null;
  /** Until then the server wants no stream of ours. */
  #notBefore = 0;
  #stopped: Ended | null = null;
  #ended: Ended | null = null;
  #rest: 'hidden' | 'offline' | null = null;
  #token: string | null | undefined;
  #expired = false;
  #renewAt: number | null = null;
  #renewMs = RENEW_MS_MIN;
  #endpoints: Endpoints | undefined;
  #timer: unknown;
  #dueAt = Infinity;
  #keptAt = -Infinity;
  #kept = 0;
  #likes = new Map<string, number>();
  #likesAt: number | null = null;
  #follows = new Set<string>();
  #deaf: (() => void) | null = null;
  #said = '';
  #on: { [K in keyof RoomEvents]: Set<(what: RoomEvents[K]) => void> } = { change: new Set(), status: new Set(), event: new Set(), report: new Set() };

  constructor(options: RoomOptions) {
    this.#options = options;
    this.id = options.room;
    this.#env = { ...here(), ...options.env };
    if (options.storage !== undefined) this.#env.keeper = options.storage;
    const base = options.url ?? (typeof location === 'undefined' ? undefined : location.origin);
    if (!base) throw new Error('outside of a page a room needs the server\'s url');
    this.#base = base.replace(/\/+$/, '');
    this.store = new Store(this.id);
    this.#kept = this.#keptCursor();
    this.#session = new Session(this.id, this.#kept);
    this.#tab = this.#name();
    this.#sseFrom = this.#env.random();
    const { fetch, WebSocket } = this.#env;
    this.#transports = {
      websocket: WebSocket && websocketTransport(WebSocket), sse: sseTransport(fetch), poll: pollTransport(fetch, () => this.#token ?? null),
      tab: null, ...options.transports,
    };
    const rungs = (options.rungs ?? ['websocket', 'sse', 'poll']).filter((rung) => this.#transports[rung] !== null);
    this.#ladder = new Ladder(rungs, this.#read(`grandstand.rung ${this.#base}`));
  }

  /** The newest event that was heard, as a stream's cursor. */
  get cursor(): number {
    return this.#session.cursor;
  }

  /** How it stands with the stream now. */
  get status(): Status {
    const last_comment_at = this.store.lastCommentAt;
    const main = this.#main;
    if (this.#role === 'follower' && this.#leaderStatus && main) return { ...this.#leaderStatus, way: 'tab', last_comment_at };
    const { paused } = this.#session;
    const { code, reason } = this.#stopped ?? (main?.greeted ? null : this.#ended) ?? {};
    let state: Status['state'] = 'connecting';
    let wait_ms: number | undefined;
    if (this.#stopped) state = 'stopped';
    else if (!this.#running) state = 'idle';
    else if (main?.greeted) state = paused ? 'paused' : 'live';
    else if (this.#rest) state = this.#rest;
    else {
      if (this.#openAt !== null && this.#openAt > this.#env.now()) {
        wait_ms = this.#openAt - this.#env.now();
        state = 'waiting';
      }
      // A room that stands still turns new streams away: its picture stays, and it is still a pause.
      if (paused && code === 4153) state = 'paused';
      else if (this.#ladder.trouble) state = 'trouble';
    }
    return { state, way: main?.way ?? null, wait_ms, code, reason, last_comment_at };
  }

  /** Calls `fn` whenever that happens; returns what ends it. */
  on<K extends keyof RoomEvents>(name: K, fn: (what: RoomEvents[K]) => void): () => void {
    this.#on[name].add(fn);
    return () => this.#on[name].delete(fn);
  }

  #tell<K extends keyof RoomEvents>(name: K, what: RoomEvents[K]): void {
    for (const fn of this.#on[name]) {
      // A listener's fault is its own; the stream goes on.
      try { fn(what); } catch (fault) { this.#env.timer(() => { throw fault; }, 0); }
    }
  }

  /** Begins: a snapshot, then a stream from its position. */
  start(): this {
    if (this.#running) return this;
    this.#running = true;
    this.#stopped = null;
    const { page } = this.#env;
    this.#deaf = page?.listen({
      shown: () => this.#wake(),
      hid: () => this.#keep(true),
      restored: () => { this.#dropAll(); this.#wake(); },
      online: () => this.#wake(),
      offline: () => { this.#dropAll(); this.#pause(); },
    }) ?? null;
    if (page && !page.online()) this.#rest = 'offline';
    const spread = Math.min(3_000, Math.max(0, this.#options.connect_spread_ms ?? 0));
    const begin = () => void this.#begin();
    if (spread > 0) this.#env.timer(begin, this.#env.random() * spread);
    else begin();
    this.#saidStatus();
    return this;
  }

  async #begin(): Promise<void> {
    const generation = this.#generation;
    await this.#haveToken('start');
    if (!this.#running || generation !== this.#generation) return;
    await this.#soon(this.#load(null), COLD_MS).catch(() => {});
    if (!this.#running || generation !== this.#generation) return;
    this.#share();
  }

  /** Ends it for good. */
  stop(): void {
    this.#running = this.#opening = false;
    this.#generation += 1;
    this.#deaf?.();
    this.#deaf = null;
    this.#keep(true);
    this.#dropAll();
    this.#tabs?.leave();
    this.#tabs = null;
    this.#openAt = null;
    this.#env.cancel(this.#timer);
    this.#timer = undefined;
    this.#dueAt = Infinity;
    this.#saidStatus();
  }

  /** Opens a stream now, whatever is waited for. */
  reconnect(): void {
    this.#stopped = null;
    this.#rest = null;
    this.#notBefore = 0;
    if (!this.#running) { this.start(); return; }
    if (this.#main?.greeted) return;
    this.#dropAll();
    this.#next(0);
  }

  /** Asks for a token anew and opens a new stream with it: somebody signed in or out. */
  renewToken(): Promise<void> {
    return this.#become(undefined);
  }

  /** A new stream, with this token. */
  async #become(token: string | undefined): Promise<void> {
    this.#token = token;
    this.#expired = this.#opening = false;
    this.#notBefore = 0;
    const generation = (this.#generation += 1);
    this.#dropAll();
    this.#openAt = null;
    await this.#haveToken('start');
    if (!this.#running || generation !== this.#generation) return;
    this.#stopped = null;
    this.#tabs?.rest();
    this.#share();
  }

  // ---- what the reader does

  /** Says something. It is on the board at once, and is sent, under one key, until there is a definite answer. Returns the key. */
  publish(body: string, { reply_to, user }: { reply_to?: number; user?: User } = {}): string {
    const key = this.#name();
    this.store.publish(key, user ?? this.user ?? { id: '', display: '', badges: [] }, body, this.#env.now(), reply_to);
    this.#changed();
    this.#tick();
    return key;
  }

  /** Likes once. Taps of a moment go together. */
  like(kind = 'like'): void {
    this.#likes.set(kind, Math.min(LIKES_MAX, (this.#likes.get(kind) ?? 0) + 1));
    this.#likesAt ??= this.#env.now() + LIKES_TOGETHER_MS;
    this.#plan();
  }

  /** Reacts to an event, once a user and event. */
  react(event_id: number, kind: string): void {
    void this.#say({ op: 'react', event_id, kind });
  }

  /** Tells the room's moderators about an event. */
  report(event_id: number, reason: string): void {
    void this.#say({ op: 'report', event_id, reason });
  }

  /** In a sampled room, comments of this user are likelier to be shown. Kept over reconnects; at most 200. */
  follow(user_id: string): void {
    if (this.#follows.size >= FOLLOWS_MAX) return;
    this.#follows.add(user_id);
    this.#main?.stream?.send({ op: 'follow', user_id });
  }

  /** Ends `follow`. */
  unfollow(user_id: string): void {
    this.#follows.delete(user_id);
    this.#main?.stream?.send({ op: 'unfollow', user_id });
  }

  /** Whom the token names; `null` for an anonymous viewer. */
  get user(): User | null {
    const claims = claimsOf(this.#token ?? null);
    return claims ? { id: claims.sub, display: claims.name ?? claims.sub, badges: claims.badges ?? [] } : null;
  }

  // ---- the token

  /** What the callback gives, or its fault; it is not waited for for ever. */
  #asks(reason: TokenReason): Promise<string | null | undefined> {
    const { token } = this.#options;
    return this.#soon((async () => (typeof token === 'function' ? token(reason) : token))());
  }

  async #haveToken(reason: TokenReason): Promise<void> {
    if (this.#token !== undefined) return;
    const generation = this.#generation;
    let token: string | null | undefined;
    try {
      token = (await this.#asks(reason)) ?? null;
    } catch {
      // Without one it is watched as nobody where that is allowed, and the callback asked again; after one that ran out, at the next attempt.
      if (!this.#expired) {
        token = null;
        this.#renewSoon();
      }
    }
    // Somebody else may be here by now.
    if (generation === this.#generation) this.#token = token;
  }

  #renewSoon(): void {
    this.#renewAt = this.#env.now() + this.#renewMs * (1 + this.#env.random());
    this.#renewMs = Math.min(RENEW_MS_MAX, 2 * this.#renewMs);
    this.#plan();
  }

  /** The stream's token ends soon, or none could be had: another one is put in its place, on the open stream. */
  async #renew(): Promise<void> {
    // It is not asked for twice at a time: a poll is told with each answer.
    this.#renewAt = Infinity;
    const generation = this.#generation;
    const conn = this.#main;
    try {
      const fresh = await this.#asks(this.#token ? 'expiring' : 'start');
      if (generation !== this.#generation || !fresh || fresh === this.#token) return;
      this.#renewMs = RENEW_MS_MIN;
      // Another user's stream is another stream.
      if (claimsOf(fresh)?.sub !== claimsOf(this.#token ?? null)?.sub) { void this.#become(fresh); return; }
      this.#token = fresh;
      if (!conn || conn !== this.#main) return;
      if (conn.way === 'websocket') conn.stream?.send({ op: 'auth', token: fresh });
      if (conn.way === 'sse') {
        const answer = await ask(this.#fetch, urlOf(conn.base, this.id, 'auth'), fresh, { session: conn.session, token: fresh });
        // The stream is gone: the next one comes with the new token.
        if (!answer.ok && conn === this.#main) { this.#dropAll(); this.#next(0); }
      }
    } catch {
      if (generation === this.#generation) this.#renewSoon();
    } finally {
      if (this.#renewAt === Infinity) this.#renewAt = null;
    }
  }

  // ---- tabs

  /** Joins the tabs that show this room to this user, or goes alone. */
  #share(): void {
    const { locks, channel } = this.#env;
    if (this.#options.share === false || !locks || !channel) { this.#next(0); return; }
    // Its number changes with what is said on the channel: tabs may run different versions of this.
    const of = `grandstand 1 ${this.#base} ${this.id} ${claimsOf(this.#token ?? null)?.sub ?? ''}`;
    if (this.#tabsOf !== of) {
      this.#tabs?.leave();
      this.#tabsOf = of;
      const place = { lead: () => this.#lead(), follow: () => this.#follow(), deny: () => this.#alone() };
      this.#tabs = new Tabs({ ...this.#env, locks, channel }, of, this.#tab, place, (said) => this.#heardTab(said));
      this.#transports.tab = tabTransport(this.#env, this.#tabs, (take) => { this.#hearTab = take; });
    }
    if (this.#mayOpen()) this.#tabs!.join();
    else this.#pause();
  }

  /** The browser lets tabs share nothing. */
  #alone(): void {
    this.#env.locks = this.#tabs = null;
    this.#role = 'alone';
    this.#next(0);
  }

  #lead(): void {
    if (!this.#running) return;
    this.#role = 'leader';
    this.#ring = new Ring(this.#session.cursor);
    this.#dropAll();
    this.#next(0);
  }

  #follow(): void {
    if (!this.#running) return;
    this.#role = 'follower';
    this.#ring = null;
    this.#notBefore = 0;
    this.#dropAll();
    this.#next(0);
  }

  #heardTab(said: Said): void {
    if (this.#role === 'follower') {
      if (said.k === 'status') {
        this.#leaderStatus = said.status as Status;
        if (this.#leaderStatus.state === 'stopped' && this.#main) this.#end(this.#main, { code: this.#leaderStatus.code ?? 4000, reason: this.#leaderStatus.reason ?? '' }, 'answer');
        else this.#saidStatus();
      } else {
        this.#hearTab?.(said);
      }
      return;
    }
    const tabs = this.#tabs;
    if (this.#role !== 'leader' || !tabs) return;
    if (said.k === 'open') {
      if (this.#main?.greeted) tabs.say({ k: 'list', to: said.from, list: this.#greeting(said.cursor), cursor: this.#session.cursor, greets: true });
      else tabs.say({ k: 'wait', to: said.from });
      tabs.say({ k: 'status', status: this.status });
    } else if (said.k === 'op') {
      void this.#say(said.op);
    }
  }

  /** What a tab that comes with this cursor is told. */
  #greeting(cursor: number): AnyEvent[] {
    const { cursor: mine, pseq } = this.#session;
    const { config, pinned } = this.store;
    const missed = cursor > 0 ? this.#ring?.since(cursor) ?? null : null;
    const from = missed ? cursor : mine;
    const hello = {
      type: 'hello', room_id: this.id, session: this.#session.first ?? '', cursor: from, pseq: missed?.pseq ?? pseq ?? undefined, resumed: missed !== null,
      comments: 'all', config, counters: this.store.counters, pinned, banners: this.store.banners(this.#env.now()).reverse(),
      ...(this.#endpoints && { endpoints: this.#endpoints }),
    } as unknown as AnyEvent;
    if (missed) return [hello, ...missed.list];
    if (cursor === 0) return [hello];
    return [hello, { type: 'snapshot_required', room_id: this.id, snapshot_url: urlOf('', this.id, 'snapshot', { min: String(mine) }), reason: 'too_old', cursor: mine, pseq: pseq ?? 0 }];
  }

  // ---- opening

  /** Whether a stream may be opened now: not while the network is gone, and not while nobody looks unless that is wished. */
  #mayOpen(): boolean {
    const { page } = this.#env;
    this.#rest = page && !page.online() ? 'offline' : page?.hidden() && !this.#options.reconnect_hidden ? 'hidden' : null;
    return this.#rest === null;
  }

  /** Nothing is opened until the page or the network is back; another tab may lead meanwhile. */
  #pause(): void {
    this.#mayOpen();
    this.#openAt = null;
    if (!this.#main) {
      this.#role = this.#tabs ? 'follower' : 'alone';
      this.#tabs?.rest();
    }
    this.#saidStatus();
  }

  /** The page or the network is back. */
  #wake(): void {
    if (!this.#running || this.#stopped || !this.#mayOpen()) return;
    const now = this.#env.now();
    this.#ladder.woke();
    if (this.#main) {
      // It may be a corpse: it is asked, and need not be waited for long.
      if (now - this.#main.heardAt > ASK_AFTER_MS && this.#main.askedAt === null) this.#inquire(this.#main, now);
      this.#tick();
    } else if (this.#tabs && !this.#tabs.leads) {
      this.#tabs.join();
      if (this.#role === 'follower' && !this.#opening) this.#next(0);
    } else {
      this.#next(0);
    }
  }

  #next(ms: number): void {
    if (!this.#running || this.#stopped) return;
    if (this.#main === null && !this.#mayOpen()) { this.#pause(); return; }
    this.#openAt = Math.max(this.#env.now() + ms, this.#notBefore);
    this.#saidStatus();
    this.#tick();
  }

  async #open(): Promise<void> {
    const generation = this.#generation;
    this.#opening = true;
    this.#saidStatus();
    try {
      await this.#haveToken(this.#expired ? 'expired' : 'start');
    } finally {
      if (generation === this.#generation) this.#opening = false;
    }
    if (!this.#running || this.#stopped || generation !== this.#generation || this.#main) return;
    if (!this.#mayOpen()) { this.#pause(); return; }
    if (this.#expired && this.#token === undefined) {
      // No new token was to be had: that is waited for like a failure, or the old one would be tried in a circle.
      this.#next(this.#ladder.failed('refused', this.#env.now(), this.#env.random()));
      return;
    }
    this.#expired = false;
    if (this.#role === 'follower') {
      if (this.#hearTab) return;
      this.#leaderStatus = null;
      this.#main = this.#connect('tab', { rung: this.#ladder.rung, attempt: 1, tries: 0, failure: null });
    } else {
      const attempt = this.#ladder.open();
      this.#main = this.#connect(attempt.rung, attempt);
    }
    this.#saidStatus();
    this.#plan();
  }

  #connect(way: Way, { attempt, tries, failure }: Attempt): Conn {
    const now = this.#env.now();
    const bases = way === 'tab' ? [this.#base] : this.#bases(way);
    const base = bases[tries % bases.length]!;
    const conn: Conn = { way, stream: null, greeted: false, openedAt: now, heardAt: now, askedAt: null, session: null, base };
    const on: Hearing = {
      events: (list) => this.#heard(conn, list),
      advanced: (cursor) => {
        if (conn !== this.#main) return;
        this.#session.advance(cursor);
        this.#plan();
      },
      ended: (how, why) => this.#end(conn, how, why),
    };
    try {
      conn.stream = this.#transports[way]!.open({
        base, roomId: this.id, cursor: this.#session.cursor, token: this.#token ?? null, session: this.#session.first, tab: this.#tab,
        attempted: { rung: way, attempt, failure },
      }, on);
    } catch {
      // A browser refuses some addresses by throwing.
      this.#env.timer(() => this.#end(conn, { code: 1006 }, 'refused'), 0);
    }
    return conn;
  }

  /** Where a rung is tried: at its own addresses, then at the one that serves them all. */
  #bases(rung: Rung): string[] {
    const named = this.#options.endpoints?.[rung] ?? this.#endpoints?.[rung] ?? [];
    const own = [named].flat().map((url) => url.replace(/\/+$/, '').replace(/^ws/, 'http'));
    const from = Math.floor(this.#sseFrom * own.length);
    const first = own[from];
    return [...new Set(first === undefined ? [this.#base] : [first, this.#base])];
  }

  get #api(): string {
    return (this.#options.endpoints?.api ?? this.#endpoints?.api ?? this.#base).replace(/\/+$/, '');
  }

  // ---- hearing

  #heard(conn: Conn, list: AnyEvent[]): void {
    if (conn !== this.#main && conn !== this.#probe) return;
    const now = this.#env.now();
    conn.heardAt = now;
    conn.askedAt = null;
    const hello = list.find((e) => e.type === 'hello');
    const greets = !conn.greeted && (hello !== undefined || conn.way === 'poll');
    if (greets) this.#greeted(conn, now);
    if (hello) {
      conn.session = hello.session;
      if (hello.endpoints) this.#endpoints = hello.endpoints;
    }
    const live = list.filter((e) => e.type !== 'close');
    const taken = this.#session.take(live);
    for (const e of taken.events) {
      this.store.apply(e, now);
      this.#tell('event', e);
    }
    for (const report of taken.reports) {
      if (report.kind === 'pseq_hole') this.store.holes += report.to - report.from + 1;
      this.#tell('report', report);
    }
    if (taken.renew_in_ms !== undefined) this.#renewAt ??= now;
    this.#relay(taken.events, live);
    if (greets) this.#begins(conn, now);
    else if (conn === this.#probe && conn.greeted) this.#handOver(conn);
    this.#changed();
    this.#saidStatus();
    this.#tick();
  }

  #greeted(conn: Conn, now: number): void {
    conn.greeted = true;
    this.#ended = null;
    if (conn === this.#probe) {
      // Its first word after the greeting shows that it carries: a WebSocket is asked for one.
      if (!conn.stream?.send({ op: 'ping' })) this.#handOver(conn);
      return;
    }
    if (conn.way !== 'tab') this.#held(conn, now);
    if (this.#role === 'leader') this.#tabs?.say({ k: 'leads' });
  }

  #held(conn: Conn, now: number): void {
    this.#ladder.good(now, this.#env.random(), conn.way as Rung);
    this.#write(`grandstand.rung ${this.#base}`, conn.way);
  }

  /** The higher rung carries: it is the stream from here on, from the same cursor. */
  #handOver(conn: Conn): void {
    const now = this.#env.now();
    this.#main?.stream?.abandon();
    this.#main = conn;
    this.#probe = null;
    this.#held(conn, now);
    this.#begins(conn, now);
  }

  /** What a new stream has to be told, or may be told again. */
  #begins(conn: Conn, now: number): void {
    for (const user_id of this.#follows) conn.stream?.send({ op: 'follow', user_id });
    this.store.reconnected(now);
  }

  /** Says to the other tabs what is news. */
  #relay(news: AnyEvent[], live: AnyEvent[]): void {
    if (this.#role !== 'leader' || !this.#tabs || !this.#ring) return;
    // A jump of the cursor is told to those who come later by a snapshot.
    if (live.some((e) => e.type === 'snapshot_required' || (e.type === 'hello' && e.resumed !== true))) this.#ring.cut(this.#session.cursor);
    this.#ring.add(news);
    const shared = news.filter((e) => e.type !== 'token_expiring' && e.type !== 'pong');
    if (shared.length > 0) this.#tabs.say({ k: 'list', list: shared, cursor: this.#session.cursor });
  }

  // ---- ending

  #dropAll(): void {
    for (const conn of [this.#main, this.#probe]) conn?.stream?.abandon();
    this.#main = this.#probe = null;
  }

  #end(conn: Conn, how: Ended, why: Failure): void {
    if (conn === this.#probe) {
      conn.stream?.abandon();
      this.#probe = null;
      this.#plan();
      return;
    }
    if (conn !== this.#main) return;
    this.#dropAll();
    this.#ended = how;
    const now = this.#env.now();
    const range = rangeOf(how.code);
    if (range === 'stop') { this.#halt(how); return; }
    if (how.code === 4101) {
      if (typeof this.#options.token !== 'function') { this.#halt(how); return; }
      this.#token = undefined;
      this.#expired = true;
    }
    if (conn.way === 'tab') {
      // Only who is looked at takes the lead by force.
      if (why === 'silence' && this.#mayOpen()) this.#tabs?.depose();
      else this.#next(backoff(0, this.#env.random()));
      return;
    }
    const ms = range === 'retry' ? this.#ladder.failed(why, conn.heardAt, this.#env.random()) : this.#ladder.refused(how, now, this.#env.random());
    if (range !== 'retry') this.#notBefore = now + ms;
    this.#next(ms);
    if (this.#role === 'leader' && this.#main === null) this.#tabs?.say({ k: 'status', status: this.status });
  }

  #halt(how: Ended): void {
    this.#stopped = how;
    this.#openAt = null;
    this.#saidStatus();
  }

  /** Lets go of a stream that is silent, without waiting for its close. */
  #corpse(conn: Conn, failure: Failure): void {
    this.#end(conn, { code: 1006, reason: failure }, failure);
  }

  #inquire(conn: Conn, now: number): void {
    if (conn.stream?.send({ op: 'ping' })) conn.askedAt = now;
  }

  // ---- deadlines

  /** When a stream is let go of, or asked for a sign. */
  #checkAt(conn: Conn): number {
    // A tab that leads may have no stream itself: it says so.
    if (!conn.greeted) return (conn.way === 'tab' ? conn.heardAt : conn.openedAt) + GREET_MS;
    if (!answers(conn)) return conn.heardAt + SILENCE_MS;
    return conn.askedAt === null ? conn.heardAt + ASK_AFTER_MS : conn.askedAt + SIGN_MS;
  }

  #check(conn: Conn, now: number, late: boolean): void {
    if (now < this.#checkAt(conn)) return;
    // A timer that was held back fires before what came meanwhile is heard.
    if (late && conn.greeted && conn.askedAt === null && !answers(conn)) {
      conn.heardAt = now - SILENCE_MS + LATE_MS;
      return;
    }
    if (!conn.greeted) { this.#corpse(conn, 'timeout'); return; }
    if (conn.askedAt === null && answers(conn)) {
      this.#inquire(conn, now);
      if (conn.askedAt !== null) return;
    }
    this.#corpse(conn, 'silence');
  }

  #tick(): void {
    if (!this.#running) return;
    const now = this.#env.now();
    const late = now - this.#dueAt > LATE_MS;
    if (this.#main) this.#check(this.#main, now, late);
    if (this.#probe) this.#check(this.#probe, now, late);
    if (!this.#main && !this.#opening && this.#openAt !== null && now >= this.#openAt) {
      this.#openAt = null;
      if (this.#mayOpen()) void this.#open();
      else this.#pause();
    }
    if (this.#main?.greeted && this.#main.way !== 'tab' && !this.#probe && this.#mayOpen()) {
      const attempt = this.#ladder.probe(now, this.#env.random());
      if (attempt) this.#probe = this.#connect(attempt.rung, attempt);
    }
    if (this.#renewAt !== null && now >= this.#renewAt) void this.#renew();
    if (this.#main?.greeted) this.#outgoing(now);
    const path = this.#main || this.#probe ? this.#session.refetch(now) : null;
    if (path !== null) void this.#load(path);
    this.#keep(false);
    this.#plan();
  }

  #plan(): void {
    if (!this.#running) return;
    const now = this.#env.now();
    const due = [this.#renewAt, this.#main && this.#checkAt(this.#main), this.#probe && this.#checkAt(this.#probe)];
    if (!this.#main && !this.#opening) due.push(this.#openAt);
    if (this.#main?.greeted) due.push(this.#likesAt, this.store.dueAt, this.#session.refetchAt, this.#probe || this.#main.way === 'tab' ? null : this.#ladder.probeAt);
    if (this.#session.cursor !== this.#kept && this.#env.keeper) due.push(this.#keptAt + KEEP_MS);
    const at = due.reduce<number>((least, one) => Math.min(least, one ?? Infinity), Infinity);
    if (at === this.#dueAt && this.#timer !== undefined) return;
    this.#env.cancel(this.#timer);
    this.#timer = undefined;
    this.#dueAt = at;
    if (at === Infinity) return;
    this.#timer = this.#env.timer(() => {
      this.#timer = undefined;
      this.#tick();
    }, Math.min(TIMER_MS_MAX, Math.max(0, at - now)));
  }

  // ---- snapshots

  /** Fetches a snapshot and joins it. `null`: the first one, before there is a stream. */
  async #load(path: string | null): Promise<void> {
    const url = path ?? urlOf('', this.id, 'snapshot');
    const was = this.#session.cursor;
    let gone = false;
    try {
      const answer = await this.#asked(url);
      // Who has its stream from another tab is not told that its token ends.
      if (answer.status === 401) this.#renewAt ??= this.#env.now();
      gone = [403, 404, 451].includes(answer.status);
      if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
      const snapshot = (await answer.json()) as Snapshot;
      if (typeof snapshot.as_of_event_id !== 'number') throw new Error(url);
      if (!this.#running) return;
      if (snapshot.endpoints) this.#endpoints = snapshot.endpoints;
      // A stream that began meanwhile has its own place: the picture is joined to it.
      const cold = path === null && this.#main === null && was === this.#session.cursor;
      this.#session.fetched(snapshot.as_of_event_id, snapshot.as_of_pseq, cold);
      this.store.snapshot(snapshot);
      this.#changed();
    } catch {
      this.#session.unfetched(gone);
    }
    this.#plan();
  }

  /** What comes in time, or a fault. */
  async #soon<T>(work: Promise<T>, ms = ANSWER_MS, late = () => {}): Promise<T> {
    let timer: unknown;
    try {
      return await Promise.race([work, new Promise<never>((_, fail) => { timer = this.#env.timer(() => { late(); fail(new Error('no answer')); }, ms); })]);
    } finally {
      this.#env.cancel(timer);
    }
  }

  /** A request that is answered soon, to the last byte, or fails. */
  #fetch = (input: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    const abort = new AbortController();
    const read = async () => {
      const answer = await this.#env.fetch(input, { ...init, signal: abort.signal });
      const { ok, status, headers } = answer;
      const body: unknown = await answer.json().catch(() => null);
      return { ok, status, headers, json: async () => body } as Response;
    };
    return this.#soon(read(), ANSWER_MS, () => abort.abort());
  };

  async #asked(path: string): Promise<Response> {
    const token = this.#token ?? null;
    try {
      return await ask(this.#fetch, this.#api + path, token);
    } catch (fault) {
      if (this.#api === this.#base) throw fault;
      return ask(this.#fetch, this.#base + path, token);
    }
  }

  // ---- what is sent

  #outgoing(now: number): void {
    for (const op of this.store.toSend(now)) {
      void this.#say(op).then((sent) => {
        if (!sent) this.store.unsent(op.client_msg_id, this.#env.now() + 1_000 + this.#env.random() * 2_000);
        this.#plan();
      });
    }
    if (this.#likesAt !== null && now >= this.#likesAt) {
      this.#likesAt = null;
      for (const [kind, n] of this.#likes) {
        void this.#say({ op: 'like', kind, n }).then((sent) => {
          // Kept for the next stream, but no more than one operation of it.
          if (!sent) this.#likes.set(kind, Math.min(LIKES_MAX, n + (this.#likes.get(kind) ?? 0)));
          if (!sent) this.#likesAt ??= this.#env.now() + SIGN_MS;
        });
      }
      this.#likes.clear();
    }
  }

  /** On the stream where it can carry that, and by HTTP otherwise. Whether it went out. */
  async #say(op: Op): Promise<boolean> {
    const conn = this.#main;
    if (conn?.stream?.send(op)) return true;
    if (!conn?.greeted || conn.way === 'tab' || conn.way === 'websocket') return false;
    const generation = this.#generation;
    try {
      const events = await post(this.#fetch, this.#api, this.id, this.#token ?? null, op);
      if (!this.#running || generation !== this.#generation) return true;
      const now = this.#env.now();
      if (events.some((e) => e.type === 'error' && e.code === 'bad_token') && typeof this.#options.token === 'function') {
        // It ran out between two renewals: nothing was decided about what was said.
        this.#renewAt ??= now;
        return false;
      }
      for (const e of events) {
        this.store.apply(e, now);
        this.#tell('event', e);
      }
      this.#relay(events, []);
      this.#changed();
      return true;
    } catch {
      return false;
    }
  }

  // ---- what is told, and kept

  #changed(): void {
    if (this.store.hasChanged) this.#tell('change', this.store.changes());
  }

  #saidStatus(): void {
    const status = this.status;
    const { wait_ms: _, last_comment_at: __, ...lasting } = status;
    const text = JSON.stringify([lasting, this.#openAt]);
    if (text === this.#said) return;
    this.#said = text;
    this.#tell('status', status);
    if (this.#role === 'leader') this.#tabs?.say({ k: 'status', status });
  }

  #keptCursor(): number {
    const kept = Number(this.#read(`grandstand.cursor ${this.#cursorOf}`));
    return Number.isSafeInteger(kept) && kept > 0 ? kept : 0;
  }

  get #cursorOf(): string {
    return `${this.#base} ${this.id}`;
  }

  #keep(now: boolean): void {
    const { cursor } = this.#session;
    const at = this.#env.now();
    if (cursor === this.#kept || cursor === 0 || (!now && at < this.#keptAt + KEEP_MS)) return;
    this.#keptAt = at;
    this.#kept = cursor;
    this.#write(`grandstand.cursor ${this.#cursorOf}`, String(cursor));
  }

  #read(key: string): string | null {
    try {
      return this.#env.keeper?.getItem(key) ?? null;
    } catch {
      return null;
    }
  }

  #write(key: string, value: string): void {
    // A full or forbidden storage costs the resume of a reload, nothing else.
    try { this.#env.keeper?.setItem(key, value); } catch { /* as said */ }
  }

  #name(): string {
    let name = '';
    while (name.length < 20) name += Math.floor(this.#env.random() * 36 ** 5).toString(36).padStart(5, '0');
    return name;
  }
}
