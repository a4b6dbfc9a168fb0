// What a room looks like, as a pure function of its snapshot and events. No DOM, no clock, no network: tested as scripts.

/** Entries kept; older ones leave the page. */
export const ENTRIES_MAX = 300;

/** Characters of a comment that stand over an answer to it. */
export const QUOTE_MAX = 90;

/** Keys of own comments are known to the server for ten minutes: one that waits longer is not asked about again. */
const KEY_HELD_MS = 9 * 60_000;

const PRIORITY = new Set(['score_event', 'retract', 'config', 'gift', 'gift_combo']);

/** Answers to the reader alone. They name an event and are none: what lies before it in the room may still be on its way. */
const ANSWERS = new Set(['publish_ack', 'publish_commit']);

/** A room nobody has told us anything about. */
export function emptyRoom(roomId) {
  return {
    roomId, title: roomId, cursor: 0, pseq: null, config: {}, scores: new Map(), entries: [], ids: new Set(),
    retracted: new Set(), skipped: 0, holes: 0, counters: {}, mine: new Map(), changed: new Set(),
    combos: new Map(), banners: new Map(), silent: new Map(),
  };
}

const scoreKey = (s) => `${s.match_id}\u0000${s.key}`;

/**
 * The score to show for each match: of the newest event that stands. An event keeps the place of its first revision, which is its
 * place in the map, so a late correction of the first goal does not take the second one back; history ranks before news.
 */
export function scoreboard(room) {
  const byMatch = new Map();
  for (const s of room.scores.values()) {
    if (s.state === 'withdrawn' || !s.score) continue;
    const shown = byMatch.get(s.match_id);
    if (!shown || shown.historical || !s.historical) byMatch.set(s.match_id, s);
  }
  return [...byMatch.values()].map((s) => ({ ...s, silentSince: room.silent.get(s.match_id) }));
}

function keepScore(room, s) {
  const known = room.scores.get(scoreKey(s));
  if (known && (known.revision ?? 0) >= (s.revision ?? 0)) return false;
  room.scores.set(scoreKey(s), s);
  room.changed.add('scores');
  return true;
}

function insert(room, entry) {
  if (entry.id !== undefined) {
    if (room.ids.has(entry.id)) return;
    room.ids.add(entry.id);
  }
  room.entries.push(entry);
  room.changed.add('entries');
  while (room.entries.length > ENTRIES_MAX) {
    const gone = room.entries.shift();
    if (gone.id !== undefined) room.ids.delete(gone.id);
    if (gone.clientMsgId !== undefined) room.mine.delete(gone.clientMsgId);
  }
}

const touch = (entry) => { entry.version = (entry.version ?? 0) + 1; };

function hide(entry, reason) {
  Object.assign(entry, { retracted: true, body: '', reason });
  touch(entry);
}

/** A text cut to `QUOTE_MAX` characters, as readers count them. */
function cut(body) {
  // A character is one unit at least: most comments need not be taken apart.
  if (body.length <= QUOTE_MAX) return body;
  const letters = [...new Intl.Segmenter(undefined, { granularity: 'grapheme' }).segment(body.slice(0, 16 * QUOTE_MAX))];
  return letters.length > QUOTE_MAX ? `${letters.slice(0, QUOTE_MAX).map((l) => l.segment).join('').trimEnd()}…` : body;
}

function commentOf(room, id) {
  return room.ids.has(id) ? room.entries.find((e) => e.id === id && e.type === 'comment') : undefined;
}

/** Whether a comment was retracted, as far as the page knows. */
export function isRetracted(room, id) {
  return room.retracted.has(id) || commentOf(room, id)?.retracted === true;
}

/**
 * What is said over an answer to the comment `id`: `{id}` alone when the page does not have that one, its author and the beginning of
 * its text, or `retracted`. A copy: it stays when the comment itself leaves the page, and goes with it when it is retracted.
 */
function parentOf(room, id) {
  if (isRetracted(room, id)) return { id, retracted: true };
  const parent = commentOf(room, id);
  return parent ? { id, rawId: parent.rawId, user: parent.user, body: cut(parent.body), ts: parent.ts } : { id };
}

/** Answers that came before what they answer, in a snapshot's older comments, are given it now. */
function joinParents(room) {
  for (const e of room.entries) {
    if (!e.parent || e.parent.retracted || e.parent.user) continue;
    const parent = parentOf(room, e.parent.id);
    if (parent.user || parent.retracted) { e.parent = parent; touch(e); }
  }
}

/** Puts an entry that has its id now where the room's order wants it. */
function place(room, entry) {
  room.entries = room.entries.filter((e) => e !== entry);
  const after = room.entries.findLastIndex((e) => e.id !== undefined && e.id < entry.id);
  room.entries.splice(after + 1, 0, entry);
}

function comment(room, c) {
  const hidden = room.retracted.has(c.event_id);
  const own = c.client_msg_id === undefined ? undefined : room.mine.get(c.client_msg_id);
  if (own) {
    // The optimistic line takes its place in room order: the shown copy is the server's.
    room.mine.delete(c.client_msg_id);
    room.entries = room.entries.filter((e) => e !== own);
  }
  if (room.ids.has(c.event_id)) {
    room.changed.add('entries');
    return;
  }
  insert(room, {
    type: 'comment', id: c.event_id, user: c.user ?? {}, body: hidden ? '' : c.body, ts: c.ts, retracted: hidden,
    repeats: c.repeats, mine: own !== undefined, fate: own === undefined ? undefined : own.rawId === undefined ? 'sent' : 'shown',
    parent: c.reply_to === undefined ? undefined : own?.parent ?? parentOf(room, c.reply_to),
    // A wide room's `publish_commit` may come after the comment, and a retract name it by its `raw_id`.
    clientMsgId: own?.clientMsgId, rawId: own?.rawId,
  });
}

function retract(room, r) {
  const target = r.target_event_id;
  // What the reader said carries a number until the server's copy is there, everything else the server's text.
  const since = r.since_ts === undefined ? -Infinity : new Date(r.since_ts).getTime();
  const said = (user, ts) => r.user_id !== undefined && user?.id === r.user_id && new Date(ts).getTime() >= since;
  const hits = (e) => r.all === true || (target !== undefined && (e.id === target || e.rawId === target)) || said(e.user, e.ts);
  if (target !== undefined) room.retracted.add(target);
  for (const e of room.entries) {
    if (e.type !== 'comment') continue;
    if (hits(e)) hide(e, r.reason);
    if (e.parent && hits(e.parent)) { e.parent = { id: e.parent.id, retracted: true }; touch(e); }
  }
  room.changed.add('entries');
}

/** Takes a room's numbers. A total of likes that was shown is not taken back by an older telling. */
function keepCounters(room, c) {
  const likes = { ...(room.counters.likes ?? {}) };
  for (const [kind, total] of Object.entries(c?.likes ?? {})) likes[kind] = Math.max(likes[kind] ?? 0, total);
  room.counters = { ...room.counters, ...(c ?? {}), likes };
  room.changed.add('counters');
}

/** Kinds of likes with their totals, the most liked first. */
export function likesShown(room) {
  return Object.entries(room.counters.likes ?? {}).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}

/** A gift, or what a run of them has come to: the totals replace those of the line that is there. */
function gift(room, e) {
  const first = e.combo_id ?? e.event_id;
  const known = room.combos.get(first);
  if (known && room.ids.has(known.id)) {
    known.gift = { ...known.gift, ...e };
    touch(known);
    room.changed.add('entries');
  } else {
    // Who came in the middle of a combo is told its totals without its first gift.
    const entry = { type: 'gift', id: e.event_id, gift: e };
    insert(room, entry);
    room.combos.set(first, entry);
  }
  if (e.ended === true) room.combos.delete(first);
  // A gift that stays alone has no end: the oldest are forgotten.
  while (room.combos.size > ENTRIES_MAX) room.combos.delete(room.combos.keys().next().value);
}

/** A site-wide banner, told once more when it stands, and with `ended` when it was taken down. */
function banner(room, b) {
  if (b.banner_id === undefined) return;
  if (b.ended === true) room.banners.delete(b.banner_id);
  else room.banners.set(b.banner_id, b);
  room.changed.add('banners');
}

/** The banners that stand at `now` (milliseconds of the wall clock), newest first; those that are over are forgotten. */
export function standing(room, now) {
  for (const [id, b] of room.banners) {
    if (Date.parse(b.until_ts) <= now) room.banners.delete(id);
  }
  return [...room.banners.values()].reverse();
}

/** Takes a snapshot as the starting picture; what is already shown stays and is joined by id. */
export function applySnapshot(room, snapshot) {
  room.cursor = Math.max(room.cursor, snapshot.as_of_event_id ?? 0);
  room.pseq = snapshot.as_of_pseq ?? room.pseq;
  room.config = { ...room.config, ...(snapshot.config ?? {}) };
  room.title = room.config.title || room.roomId;
  keepCounters(room, snapshot.counters);
  // In the order of their first revisions, which those that came on the stream alone do not know.
  const known = room.scores;
  room.scores = new Map();
  for (const s of snapshot.scores ?? []) keepScore(room, s);
  for (const s of known.values()) keepScore(room, s);
  for (const b of snapshot.banners ?? []) banner(room, b);
  for (const c of snapshot.recent_comments ?? []) comment(room, c);
  room.entries.sort((a, b) => (a.id ?? Infinity) - (b.id ?? Infinity));
  joinParents(room);
  room.changed.add('head').add('scores').add('entries');
}

/** Applies one event. Returns what the shell must do: `null`, or `{refetch: url}`. */
export function apply(room, e) {
  if (typeof e.event_id === 'number' && !ANSWERS.has(e.type)) {
    if (e.event_id <= room.cursor) return null;
    room.cursor = e.event_id;
  }
  if (PRIORITY.has(e.type) && typeof e.pseq === 'number') {
    if (room.pseq !== null && e.pseq > room.pseq + 1) room.holes += e.pseq - room.pseq - 1;
    room.pseq = Math.max(room.pseq ?? 0, e.pseq);
  }
  switch (e.type) {
    case 'hello': {
      const missed = e.resumed === false && room.cursor > 0 && e.cursor > room.cursor;
      room.config = { ...room.config, ...e.config };
      room.title = room.config.title || room.roomId;
      if (typeof e.cursor === 'number') room.cursor = e.cursor;
      if (typeof e.pseq === 'number') room.pseq = e.pseq;
      keepCounters(room, e.counters);
      // All that stand: one that was taken down meanwhile is not among them.
      room.banners.clear();
      room.changed.add('banners');
      for (const b of e.banners ?? []) banner(room, b);
      // Who is silent is said right after.
      room.silent.clear();
      room.changed.add('head').add('scores');
      // Greeted from the head though the page had a cursor: what lies between is in a snapshot that is no older than that.
      return missed ? { refetch: `/v1/rooms/${encodeURIComponent(room.roomId)}/snapshot?min=${e.cursor}` } : null;
    }
    case 'feed_stale':
      if (e.ended) room.silent.delete(e.match_id);
      else room.silent.set(e.match_id, e.since_ts);
      room.changed.add('scores');
      return null;
    case 'comment':
      comment(room, e);
      return null;
    case 'score_event':
      if (keepScore(room, e) && !e.historical && !e.superseded) insert(room, { type: 'score', id: e.event_id, score: e });
      return null;
    case 'gift':
    case 'gift_combo':
      gift(room, e);
      return null;
    case 'banner':
      banner(room, e);
      return null;
    case 'retract':
      retract(room, e);
      return null;
    case 'config':
      room.config = { ...room.config, ...e };
      room.title = room.config.title || room.roomId;
      room.changed.add('head');
      if (e.slow_mode_seconds !== undefined) insert(room, { type: 'note', id: e.event_id, text: slowModeText(e.slow_mode_seconds) });
      else if (e.state !== undefined) insert(room, { type: 'note', id: e.event_id, text: `The room is ${e.state}.` });
      return null;
    case 'skipped':
      room.skipped += e.count ?? 0;
      insert(room, { type: 'note', text: `${e.count} comments passed over: this connection was too slow for them.` });
      return null;
    case 'counters':
      keepCounters(room, { likes: e.likes, viewers: e.viewers, keep_fraction: e.keep_fraction });
      return null;
    case 'snapshot_required':
      if (typeof e.cursor === 'number') room.cursor = e.cursor;
      return { refetch: e.snapshot_url };
    case 'publish_ack':
      settle(room, e.client_msg_id, 'sent', e.raw_id === undefined ? {} : { rawId: e.raw_id });
      return null;
    case 'publish_commit':
      commit(room, e);
      return null;
    case 'rate_limited':
      settle(room, e.client_msg_id, 'refused', { reason: `${reasonText(e.reason)}`, retryAfterMs: e.retry_after_ms });
      return null;
    case 'moderation_failed':
      settle(room, e.client_msg_id, 'refused', { reason: e.reason ?? 'not allowed by moderation' });
      return null;
    case 'moderation_pending':
      settle(room, e.client_msg_id, 'waiting', { reason: 'waiting for moderation', retryAfterMs: e.retry_after_ms });
      return null;
    case 'error':
      if (e.client_msg_id !== undefined) {
        settle(room, e.client_msg_id, 'refused', { reason: e.message ?? e.code, retryAfterMs: e.retry_after_ms });
      }
      return null;
    default:
      return null;
  }
}

/** Puts the reader's own comment on the page before the server has answered. `parent`: of `answerable`, when it answers a comment. */
export function optimistic(room, clientMsgId, user, body, ts, parent) {
  const entry = {
    type: 'comment', user, body, ts, mine: true, fate: 'sending', clientMsgId, version: 0, parent,
  };
  room.mine.set(clientMsgId, entry);
  insert(room, entry);
}

function settle(room, clientMsgId, fate, more = {}) {
  const entry = room.mine.get(clientMsgId);
  if (!entry) return;
  Object.assign(entry, { fate, ...more });
  touch(entry);
  if (room.retracted.has(entry.rawId)) hide(entry);
  if (fate === 'refused') room.mine.delete(clientMsgId);
  room.changed.add('entries');
}

/** What became of an own comment of a wide room, or of one that was held: its id in the room, or that it is kept and not shown. */
function commit(room, e) {
  const entry = room.mine.get(e.client_msg_id) ?? room.entries.find((known) => known.clientMsgId === e.client_msg_id);
  // Its copy in the room's order is here already, with its id.
  if (!entry || entry.id !== undefined) return;
  room.changed.add('entries');
  // It stays among those that may still be decided: an owner that went away may have spoken too soon.
  if (e.event_id === undefined) return settle(room, e.client_msg_id, 'kept');
  room.mine.delete(e.client_msg_id);
  if (room.ids.has(e.event_id)) {
    // It came as anybody's: that line is the reader's own.
    room.entries = room.entries.filter((known) => known !== entry);
    const shown = room.entries.find((known) => known.id === e.event_id);
    if (shown) { Object.assign(shown, { mine: true, fate: 'shown', clientMsgId: entry.clientMsgId, rawId: entry.rawId }); touch(shown); }
    return;
  }
  Object.assign(entry, { id: e.event_id, fate: 'shown' });
  touch(entry);
  room.ids.add(e.event_id);
  place(room, entry);
  if (room.retracted.has(e.event_id)) hide(entry);
}

/** The comment `id` as it stands over an answer to it: `{id, user, body}`, or `null` when the page does not have it or it was retracted. */
export function answerable(room, id) {
  const parent = parentOf(room, id);
  return parent.user === undefined ? null : parent;
}

/** What the badge of a sampled room says at length; `null` when everyone is shown everything. */
export function sampledText(room) {
  if (!room.config.sampled) return null;
  const cap = room.config.cap ? `at most ${room.config.cap} comments a second` : 'a part of the comments';
  const keep = room.counters.keep_fraction;
  const part = typeof keep === 'number' && keep < 1 ? `, now about ${percent(keep)} of what is said` : '';
  return `You are shown ${cap}${part}. Scores and gifts are complete.`;
}

function percent(part) {
  return `${Number((part * 100).toPrecision(2))} %`;
}

/**
 * Own comments without a definite answer, at `now` (milliseconds of the wall clock): to be sent again, with the same key, after a
 * reconnect. Of a wide room those too that nothing is known of but that they are kept safe: the new connection is told the rest.
 */
export function undecided(room, now) {
  const open = (e) => !e.retracted && (e.fate === 'sending' || e.fate === 'waiting'
    || (e.fate === 'sent' && e.rawId !== undefined && now - e.ts < KEY_HELD_MS));
  return [...room.mine.values()].filter(open);
}

function slowModeText(seconds) {
  return seconds > 0 ? `Slow mode: one comment every ${seconds} s.` : 'Slow mode is off.';
}

function reasonText(reason) {
  switch (reason) {
    case 'slow_mode': return 'slow mode';
    case 'user_rate': return 'you write too fast';
    case 'room_rate': return 'the room is too busy';
    case 'ip_rate': return 'too many from your address';
    default: return reason ?? 'too many';
  }
}
