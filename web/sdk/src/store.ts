// What a room looks like, as a function of its snapshot and events. No document, no network; the time is the caller's.
//
// A notice board: lines hang in the room's order, a removed one leaves a slip that says why, and what the reader pinned up
// before the server answered hangs at the bottom until it gets its place. Shared events never change what is the reader's own
// (which lines are its own, what became of them, what part it is shown). It must never show a text that was retracted, also when
// the retract came first.
import type {
  BannerEvent, CommentEvent, ConfigEvent, CounterValues, CountersEvent, GiftComboEvent, GiftEvent, PublishAckEvent,
  RetractEvent, RoomConfig, ScoreEvent, ServerEvent, SkippedEvent, User,
} from './wire.ts';
import type { Op, Snapshot } from './types.ts';

/** Lines kept; older ones leave the board. */
export const ENTRIES_MAX = 300;
/** Retracts remembered for what has not come yet: of single comments, and of users. */
export const TOMBSTONES_MAX = 512;
const TOMBSTONES_USERS_MAX = 64;
/** The server knows keys of comments for ten minutes: one that waits longer is not asked about again. */
const KEY_HELD_MS = 9 * 60_000;
/** Without an answer for so long, a comment is sent again under the same key. */
export const ANSWER_MS = 10_000;
/** Waits between two sendings after an answer that decides nothing and says no wait. */
const AGAIN_MS = 2_000;

/** Answers after which the same comment may be sent again under its key, because they decide nothing. */
const UNDECIDED = new Set(['overloaded', 'no_space', 'not_ready', 'outcome_unknown', 'server_fault', 'too_many']);

/** What became of the reader's own comment. */
export type Fate =
  | 'sending'
  /** Moderation has it, or it is to be sent again. */
  | 'waiting'
  /** Durable, and in its place or on its way there. */
  | 'sent'
  /** A wide room showed it. */
  | 'shown'
  /** A wide room kept it and showed it to nobody. */
  | 'kept'
  | 'refused'
  /** No answer within ten minutes: it may be in the room or not. */
  | 'unknown';

/** What stands over an answer to a comment: its author and text, as far as they are known. */
export interface Parent {
  id: number;
  rawId?: number | undefined;
  user?: User | undefined;
  body?: string | undefined;
  ts?: string | number | undefined;
  retracted?: true;
}

interface AnyEntry {
  /** The event's id; a comment of the reader's own has none until the server gave it one. */
  id?: number | undefined;
  /** Counts the changes of this line. */
  version: number;
}

/** A comment. The object stays the same while `version` counts its changes. */
export interface CommentEntry extends AnyEntry {
  type: 'comment';
  user: User;
  body: string;
  /** As the server tells it, or milliseconds while only the reader knows it. */
  ts: string | number;
  /** The text is gone; `reason` stands in its place. */
  retracted: boolean;
  /** Why it was retracted, refused, or waits. */
  reason?: string | undefined;
  /** Others who said the same. */
  repeats?: number | undefined;
  /** What it answers. */
  parent?: Parent | undefined;
  /** The reader's own. */
  mine: boolean;
  /** What became of it, when it is the reader's own. */
  fate?: Fate | undefined;
  /** Its key, when it is the reader's own. */
  clientMsgId?: string | undefined;
  /** In a wide room, what it was acknowledged under. */
  rawId?: number | undefined;
  /** When it may be said again. */
  retryAfterMs?: number | undefined;
}

/** One event of a match. */
export interface ScoreEntry extends AnyEntry {
  type: 'score';
  score: ScoreEvent;
}

/** One gift, or what a run of gifts has come to. */
export interface GiftEntry extends AnyEntry {
  type: 'gift';
  gift: GiftEvent | GiftComboEvent;
}

/** A change of slow mode or of the room's state. */
export interface ConfigEntry extends AnyEntry {
  type: 'config';
  config: ConfigEvent;
}

/** Comments passed over because this viewer was too slow. */
export interface SkippedEntry extends AnyEntry {
  type: 'skipped';
  count: number;
}

/** One line of the board. */
export type Entry = CommentEntry | ScoreEntry | GiftEntry | ConfigEntry | SkippedEntry;

/** What changed since it was asked last. */
export type Part = 'head' | 'entries' | 'scores' | 'counters' | 'banners' | 'pinned';

/** The score of one match. */
export type Score = ScoreEvent & { /** Since when its provider is silent. */ silentSince?: string | undefined };

interface Own {
  entry: CommentEntry;
  /** When it was sent first (Infinity: not yet), and when it is to be sent (again). */
  at: number;
  due: number;
}

type Numbers = Partial<Omit<CounterValues, 'as_of_ts'>> & { likes: Record<string, number> };

/** The picture of a room: comments, scores, gifts, likes, banners, pins. */
export class Store {
  readonly roomId: string;
  title: string;
  /** Its settings, as viewers are told them. */
  config: Partial<RoomConfig> = {};
  /** What hangs on the board, in the room's order; at most 300. */
  entries: Entry[] = [];
  /** Likes of each kind, viewers, and the part of the comments this viewer is given. */
  counters: Numbers = { likes: {} };
  /** Ids of the events that the room shows apart. */
  pinned: number[] = [];
  /** Comments passed over because this viewer was too slow. */
  skipped = 0;
  /** Priority events that never came. */
  holes = 0;
  /** The time of the newest comment that was shown, in milliseconds. */
  lastCommentAt: number | null = null;
  #changed = new Set<Part>();
  #scores = new Map<string, ScoreEvent>();
  #banners = new Map<string, BannerEvent>();
  #silent = new Map<string, string>();
  #combos = new Map<number, GiftEntry>();
  #byId = new Map<number, Entry>();
  /** Own comments that are not decided, or are not in their place, by key. */
  #own = new Map<string, Own>();
  /** Retracted ids that may still come, oldest first. */
  #tombstones = new Map<number, string>();
  #retractsOfUsers: RetractEvent[] = [];
  /** Everything up to here was retracted. */
  #cleared: { id: number; reason: string } | null = null;
  #configAt = 0;

  constructor(roomId: string) {
    this.roomId = roomId;
    this.title = roomId;
  }

  /** What changed since this was called last. @internal */
  changes(): Set<Part> {
    const changed = this.#changed;
    this.#changed = new Set();
    return changed;
  }

  /** @internal */
  get hasChanged(): boolean {
    return this.#changed.size > 0;
  }

  /** Takes a snapshot: what is already shown stays and is joined by id. */
  snapshot(s: Snapshot): void {
    if (s.as_of_event_id >= this.#configAt) {
      this.#configAt = s.as_of_event_id;
      this.#configure(s.config, s.pinned);
    }
    // The part this viewer is given is its own; a snapshot is everybody's.
    const { keep_fraction: _, ...shared } = s.counters;
    this.#count(shared);
    // In the order of their first revisions, which those that came on a stream alone do not know.
    const known = this.#scores;
    this.#scores = new Map();
    for (const score of s.scores) this.#keepScore(score);
    for (const score of known.values()) this.#keepScore(score);
    for (const b of s.banners) this.#banner(b);
    for (const c of s.recent_comments) this.#comment(c);
    this.entries.sort((a, b) => (a.id ?? Infinity) - (b.id ?? Infinity));
    this.#joinParents();
    this.#changed.add('head').add('scores').add('entries');
  }

  /** Takes one event of a stream. `now`: milliseconds of the wall clock. */
  apply(e: ServerEvent, now: number): void {
    switch (e.type) {
      case 'hello':
        this.#configAt = Math.max(this.#configAt, e.cursor);
        this.#configure(e.config, e.pinned);
        this.#count(e.counters);
        // All that stand: one that was taken down meanwhile is not among them. Who is silent is said right after.
        this.#banners.clear();
        this.#silent.clear();
        for (const b of e.banners ?? []) this.#banner(b);
        this.#changed.add('banners').add('scores');
        break;
      case 'comment':
        this.#comment(e);
        break;
      case 'score_event':
        if (this.#keepScore(e) && !e.historical && !e.superseded) this.#insert({ type: 'score', id: e.event_id, score: e, version: 0 });
        break;
      case 'gift':
      case 'gift_combo':
        this.#gift(e);
        break;
      case 'banner':
        this.#banner(e);
        break;
      case 'retract':
        this.#retract(e);
        break;
      case 'config':
        // A stream that begins before the snapshot tells again what the snapshot knows better.
        if (e.event_id > this.#configAt) {
          const { type: _, room_id: __, event_id, pseq: ___, pinned, ...changed } = e;
          this.#configAt = event_id;
          this.#configure({ ...this.config, ...changed }, pinned);
        }
        if (e.slow_mode_seconds !== undefined || e.state !== undefined) this.#insert({ type: 'config', id: e.event_id, config: e, version: 0 });
        break;
      case 'skipped':
        this.#skip(e);
        break;
      case 'counters':
        this.#count(e);
        break;
      case 'feed_stale':
        if (e.ended) this.#silent.delete(e.match_id);
        else this.#silent.set(e.match_id, e.since_ts);
        this.#changed.add('scores');
        break;
      case 'publish_ack':
        this.#acked(e);
        break;
      case 'publish_commit':
        this.#commit(e.client_msg_id, e.event_id);
        break;
      case 'rate_limited':
        this.#settle(e, 'refused', e.reason);
        break;
      case 'moderation_failed':
        this.#settle(e, 'refused', e.reason ?? 'moderation');
        break;
      case 'moderation_pending':
        this.#settle(e, 'waiting', 'moderation', now + (e.retry_after_ms ?? Infinity));
        break;
      case 'error':
        if (UNDECIDED.has(e.code)) this.#settle(e, 'waiting', e.code, now + (e.retry_after_ms ?? AGAIN_MS));
        else this.#settle(e, 'refused', e.message ?? e.code);
        break;
      default:
    }
  }

  // ---- what is shown

  /**
   * The score of each match: of the newest event that stands. An event keeps the place of its first revision, so a late
   * correction of the first goal does not take the second one back; what is historical ranks before what is not.
   */
  get scores(): Score[] {
    const byMatch = new Map<string, ScoreEvent>();
    for (const s of this.#scores.values()) {
      if (s.state === 'withdrawn' || !s.score) continue;
      const shown = byMatch.get(s.match_id);
      if (!shown || shown.historical || !s.historical) byMatch.set(s.match_id, s);
    }
    return [...byMatch.values()].map((s) => ({ ...s, silentSince: this.#silent.get(s.match_id) }));
  }

  /** Every score event that is known, each by its highest revision, in the order of the first ones. */
  get scoreEvents(): ScoreEvent[] {
    return [...this.#scores.values()];
  }

  /** The banners that stand at `now` (milliseconds of the wall clock), newest first. */
  banners(now: number): BannerEvent[] {
    for (const [id, b] of this.#banners) if (Date.parse(b.until_ts) <= now) this.#banners.delete(id);
    return [...this.#banners.values()].filter((b) => !b.ended).reverse();
  }

  /** The comment of this id, or raw id, where it is on the board. */
  comment(id: number): CommentEntry | undefined {
    const found = this.#byId.get(id);
    if (found) return found.type === 'comment' ? found : undefined;
    return this.entries.find((e): e is CommentEntry => e.type === 'comment' && e.rawId === id);
  }

  /** Whether a comment was retracted, as far as it is known here. */
  isRetracted(id: number): boolean {
    return this.#tombstones.has(id) || this.comment(id)?.retracted === true;
  }

  /** What stands over an answer to the comment `id`; `null` when it is not on the board or was retracted. */
  answerable(id: number): Parent | null {
    const parent = this.#parentOf(id);
    return parent.user === undefined ? null : parent;
  }

  // ---- the reader's own

  /** Puts the reader's own comment on the board before the server has answered. @internal */
  publish(clientMsgId: string, user: User, body: string, now: number, replyTo?: number): void {
    const parent = replyTo === undefined ? undefined : this.#parentOf(replyTo);
    const entry: CommentEntry = { type: 'comment', user, body, ts: now, retracted: false, mine: true, fate: 'sending', clientMsgId, version: 0, parent };
    this.#own.set(clientMsgId, { entry, at: Infinity, due: now });
    this.#insert(entry);
  }

  /** What is to be sent now: own comments without a definite answer, each under its own key. They are due again without one. @internal */
  toSend(now: number): Extract<Op, { op: 'publish' }>[] {
    const ops: Extract<Op, { op: 'publish' }>[] = [];
    for (const [key, own] of this.#own) {
      if (now - own.at > KEY_HELD_MS) {
        if (own.due < Infinity) this.#settle({ client_msg_id: key }, 'unknown');
        // What a moderator has may be decided an hour later.
        if (own.entry.fate !== 'waiting') this.#own.delete(key);
      } else if (own.due <= now) {
        own.at = Math.min(own.at, now);
        own.due = now + ANSWER_MS;
        if (!own.entry.retracted) ops.push({ op: 'publish', client_msg_id: key, body: own.entry.body, ...(own.entry.parent && { reply_to: own.entry.parent.id }) });
      }
    }
    return ops;
  }

  /** When something is to be sent next. @internal */
  get dueAt(): number | null {
    let due = Infinity;
    for (const own of this.#own.values()) due = Math.min(due, own.due);
    return due === Infinity ? null : due;
  }

  /** Sending failed: it is due again then. @internal */
  unsent(clientMsgId: string, at: number): void {
    const own = this.#own.get(clientMsgId);
    if (own) own.due = at;
  }

  /**
   * A stream was opened: what the last one may have swallowed is due. So is what waits for a word, of a wide room or of a moderator:
   * the new stream is told the rest. @internal
   */
  reconnected(now: number): void {
    for (const own of this.#own.values()) {
      const { fate, rawId } = own.entry;
      const isHeld = fate === 'waiting' && own.due === Infinity && now - own.at <= KEY_HELD_MS;
      if (fate === 'sending' || isHeld || (fate === 'sent' && rawId !== undefined)) own.due = now;
    }
  }

  /** What became of an own comment. `due`: when it is asked about again. */
  #settle(e: { client_msg_id?: string; raw_id?: number; retry_after_ms?: number }, fate: Fate, reason?: string, due = Infinity): void {
    const key = e.client_msg_id!;
    const own = this.#own.get(key);
    if (!own) return;
    const { entry } = own;
    Object.assign(entry, { fate, reason, retryAfterMs: e.retry_after_ms, rawId: e.raw_id ?? entry.rawId });
    own.due = due;
    this.#touch(entry);
    const gone = this.#tombstones.get(entry.rawId!);
    if (gone !== undefined) this.#hide(entry, gone);
    if (fate === 'refused') this.#own.delete(key);
  }

  #acked(e: PublishAckEvent): void {
    this.#settle(e, 'sent');
    // By HTTP an answer may say what a `publish_commit` would.
    if (e.event_id !== undefined || e.shown !== undefined) this.#commit(e.client_msg_id, e.event_id);
  }

  /** What became of an own comment: its place, or that a wide room keeps it and does not show it. */
  #commit(key: string, id: number | undefined): void {
    const entry = this.#own.get(key)?.entry ?? this.entries.find((e): e is CommentEntry => e.type === 'comment' && e.clientMsgId === key);
    // Its copy in the room's order is here already, with its id.
    if (!entry || entry.id !== undefined) return;
    // It stays among those that may still be decided: an owner that went away may have spoken too soon.
    if (id === undefined) return this.#settle({ client_msg_id: key }, 'kept');
    this.#own.delete(key);
    const fate = entry.rawId === undefined ? 'sent' : 'shown';
    const shown = this.#byId.get(id);
    if (shown) {
      // It came as anybody's: that line is the reader's own.
      this.entries = this.entries.filter((e) => e !== entry);
      if (shown.type === 'comment') Object.assign(shown, { mine: true, fate, clientMsgId: key, rawId: entry.rawId });
      this.#touch(shown);
      return;
    }
    Object.assign(entry, { id, fate, reason: undefined, retryAfterMs: undefined });
    this.#touch(entry);
    this.#byId.set(id, entry);
    this.#place(entry);
    this.#bury(entry);
  }

  // ---- lines

  #touch(entry: Entry): void {
    entry.version += 1;
    this.#changed.add('entries');
  }

  #insert(entry: Entry): void {
    if (entry.id !== undefined) {
      if (this.#byId.has(entry.id)) return;
      this.#byId.set(entry.id, entry);
    }
    this.#changed.add('entries');
    this.#place(entry);
    while (this.entries.length > ENTRIES_MAX) {
      const gone = this.entries.shift()!;
      if (gone.id !== undefined) this.#byId.delete(gone.id);
      // What is not decided is asked about without its line, too.
      if (gone.type === 'comment' && this.#own.size > ENTRIES_MAX) this.#own.delete(gone.clientMsgId!);
    }
  }

  /** Where the room's order wants it. What has no id yet stays at the end. */
  #place(entry: Entry): void {
    const { id } = entry;
    const at = this.entries.indexOf(entry);
    if (at >= 0) this.entries.splice(at, 1);
    // An answer may have overtaken what was said before it: lines that have no id yet stand between. Without an id nothing is above.
    const above = this.entries.findIndex((e) => e.id! > id!);
    this.entries.splice(above < 0 ? this.entries.length : above, 0, entry);
  }

  #comment(c: CommentEvent): void {
    const { event_id: id, client_msg_id: key, user, body, ts, repeats } = c;
    const at = Date.parse(ts);
    if (!(this.lastCommentAt !== null && this.lastCommentAt >= at)) this.lastCommentAt = at;
    // The optimistic line takes its place in room order.
    if (key !== undefined) this.#commit(key, id);
    const mine = key !== undefined && { mine: true, fate: 'sent' as const, clientMsgId: key };
    const known = this.#byId.get(id);
    if (known) {
      if (known.type !== 'comment') return;
      // Joined by id: a shared copy says nothing about whose it is, the author's own does. What is shown is the server's.
      if (typeof known.ts === 'number') Object.assign(known, { user, ts, repeats }, !known.retracted && { body });
      else if (known.mine || !mine) return;
      else Object.assign(known, mine);
      this.#touch(known);
      return;
    }
    const entry: CommentEntry = {
      type: 'comment', id, user, body, ts, retracted: false, repeats, version: 0, mine: false, ...mine,
      parent: c.reply_to === undefined ? undefined : this.#parentOf(c.reply_to),
    };
    this.#bury(entry);
    this.#insert(entry);
  }

  /** Hides a comment whose retract came first. */
  #bury(entry: CommentEntry): void {
    const id = entry.id!;
    const reason = this.#tombstones.get(id) ?? this.#tombstones.get(entry.rawId!)
      ?? (this.#cleared !== null && id < this.#cleared.id ? this.#cleared.reason : undefined)
      ?? this.#retractsOfUsers.find((r) => id < r.event_id && said(r, entry))?.reason;
    if (reason !== undefined) this.#hide(entry, reason);
  }

  #hide(entry: CommentEntry, reason: string | undefined): void {
    Object.assign(entry, { retracted: true, body: '', reason });
    this.#touch(entry);
  }

  #retract(r: RetractEvent): void {
    const target = r.target_event_id;
    if (target !== undefined) {
      this.#tombstones.set(target, r.reason);
      while (this.#tombstones.size > TOMBSTONES_MAX) this.#tombstones.delete(this.#tombstones.keys().next().value!);
    } else if (r.all === true) {
      this.#cleared = { id: r.event_id, reason: r.reason };
    } else {
      this.#retractsOfUsers.push(r);
      if (this.#retractsOfUsers.length > TOMBSTONES_USERS_MAX) this.#retractsOfUsers.shift();
    }
    const hits = (e: Pick<CommentEntry, 'id' | 'rawId' | 'user' | 'ts'> | Parent) =>
      r.all === true || (target !== undefined && (e.id === target || e.rawId === target)) || said(r, e);
    for (const e of this.entries) {
      if (e.type !== 'comment') continue;
      // What was said after it is not meant: a stream that begins before a snapshot tells it late. Nor is what has no place yet.
      const later = (e.id ?? e.rawId ?? Infinity) > r.event_id;
      if (!later && !e.retracted && hits(e)) this.#hide(e, r.reason);
      if (e.parent && !e.parent.retracted && e.parent.id < r.event_id && hits(e.parent)) {
        e.parent = { id: e.parent.id, retracted: true };
        this.#touch(e);
      }
    }
  }

  /** `{id}` alone when the comment is not here, its author and text, or that it was retracted. A copy: it outlives the line. */
  #parentOf(id: number): Parent {
    if (this.isRetracted(id)) return { id, retracted: true };
    const parent = this.comment(id);
    return parent ? { id, rawId: parent.rawId, user: parent.user, body: parent.body, ts: parent.ts } : { id };
  }

  /** Answers that came before what they answer are given it now. */
  #joinParents(): void {
    for (const e of this.entries) {
      if (e.type !== 'comment' || !e.parent || e.parent.retracted || e.parent.user) continue;
      const parent = this.#parentOf(e.parent.id);
      if (parent.user || parent.retracted) { e.parent = parent; this.#touch(e); }
    }
  }

  /** A gift, or what a run of them has come to: the totals replace those of the line that is there. */
  #gift(e: GiftEvent | GiftComboEvent): void {
    const first = e.type === 'gift_combo' ? e.combo_id : e.event_id;
    const known = this.#combos.get(first);
    if (known && known.id !== undefined && this.#byId.has(known.id)) {
      known.gift = { ...known.gift, ...e } as GiftEntry['gift'];
      this.#touch(known);
    } else {
      // Who came in the middle of a combo is told its totals without its first gift.
      const entry: GiftEntry = { type: 'gift', id: e.event_id, gift: e, version: 0 };
      this.#insert(entry);
      this.#combos.set(first, entry);
    }
    if (e.type === 'gift_combo' && e.ended === true) this.#combos.delete(first);
    // A gift that stays alone has no end: the oldest are forgotten.
    while (this.#combos.size > ENTRIES_MAX) this.#combos.delete(this.#combos.keys().next().value!);
  }

  #banner(b: BannerEvent): void {
    // One that was taken down is remembered until its time: an older snapshot may have it.
    if (b.banner_id === undefined || this.#banners.get(b.banner_id)?.ended) return;
    this.#banners.set(b.banner_id, b);
    this.#changed.add('banners');
  }

  #keepScore(s: ScoreEvent): boolean {
    const key = `${s.match_id}\u0000${s.key}`;
    const known = this.#scores.get(key);
    if (known && (known.revision ?? 0) >= (s.revision ?? 0)) return false;
    this.#scores.set(key, s);
    this.#changed.add('scores');
    return true;
  }

  /** Totals of likes that were shown are not taken back by an older telling. */
  #count(c: Partial<CounterValues> | CountersEvent): void {
    const likes = { ...this.counters.likes };
    for (const [kind, total] of Object.entries(c.likes ?? {})) likes[kind] = Math.max(likes[kind] ?? 0, total);
    if (c.viewers !== undefined) this.counters.viewers = c.viewers;
    if (c.keep_fraction !== undefined) this.counters.keep_fraction = c.keep_fraction;
    this.counters.likes = likes;
    this.#changed.add('counters');
  }

  /** Takes all that holds of the room's settings: what is not said holds no more. */
  #configure(config: Partial<RoomConfig>, pinned: number[] | undefined): void {
    this.config = config;
    this.title = this.config.title || this.roomId;
    if (pinned !== undefined) {
      this.pinned = pinned;
      this.#changed.add('pinned');
    }
    this.#changed.add('head');
  }

  #skip(e: SkippedEvent): void {
    this.skipped += e.count;
    this.#insert({ type: 'skipped', count: e.count, version: 0 });
  }
}

/** Whether a retract of a user's comments means this one. */
function said(r: RetractEvent, e: { user?: User | undefined; ts?: string | number | undefined }): boolean {
  if (r.user_id === undefined || e.user?.id !== r.user_id) return false;
  // What the reader said carries a number until the server's copy is there.
  return r.since_ts === undefined || new Date(e.ts ?? 0).getTime() >= Date.parse(r.since_ts);
}
