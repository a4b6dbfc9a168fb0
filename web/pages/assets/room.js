// The room page's shell: the client package has the stream and the picture, this puts it into the document. Text is always text.

import { Room, statusText } from './grandstand-client.js';
import { keep, kept } from './kept.js';
import { roomWall } from './wall.js';
import { claim, configLine, cut, hue, likesShown, money, reasonText, sampledText, scoreLine, scoreMarks, shownAs, span } from './words.js';

const roomId = decodeURIComponent(location.pathname.split('/')[2] ?? '');
const el = (id) => document.getElementById(id);
const [feed, pill, scores, stateTag, note, text, nameInput] =
  ['feed', 'pill', 'scores', 'state', 'composer-note', 'composer-text', 'composer-name'].map(el);

// ---- identity: a named guest of this browser, or a token handed over in the fragment (never in the query, never logged)
const handed = new URLSearchParams(location.hash.slice(1)).get('token');
if (handed) history.replaceState(null, '', location.pathname);
/** The request that makes the guest, while it is under way. */
let entering = null;
let guest = keptGuest();
if (handed) guest = { token: handed, name: claim(handed, 'name') ?? claim(handed, 'sub') ?? 'you', id: claim(handed, 'sub'), expires: Infinity };
el('name-row').hidden = guest !== null;

/** The guest of an earlier visit, while its token is good; whatever else lies under that name is nobody. */
function keptGuest() {
  try {
    const found = JSON.parse(kept('grandstand.guest'));
    return typeof found.token === 'string' && found.expires > Date.now() ? found : null;
  } catch {
    return null;
  }
}

async function becomeGuest(name) {
  const response = await fetch('/v1/guest', {
    method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ name, room_id: roomId }),
  });
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(body.detail ?? body.title ?? `HTTP ${response.status}`);
  const exp = claim(body.token, 'exp');
  guest = { token: body.token, name, id: claim(body.token, 'sub'), expires: (exp ?? 0) * 1000 };
  keep('grandstand.guest', JSON.stringify(guest));
  el('name-row').hidden = true;
  await room.renewToken();
}

const room = new Room({
  room: roomId,
  token(reason) {
    // A guest's name is good for twelve hours; then the reader watches on and chooses one anew.
    if (reason === 'expired') { guest = null; keep('grandstand.guest', null); el('name-row').hidden = false; }
    return guest?.token ?? null;
  },
});
const { store } = room;
const wall = roomWall(room);

const NOT_CONNECTED = 'Not connected: it is sent when the connection is back.';

// ---- painting: at most once per animation frame, and only what changed
const nodes = new Map();
let dirty = new Set();
let painting = false;
let pinned = true;
let unread = 0;
let scoreSeen = new Map();

function paintSoon() {
  if (painting) return;
  painting = true;
  requestAnimationFrame(() => { painting = false; paint(); });
  // A hidden tab gets no animation frame; its document is brought up to date when it is shown.
}

const time = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });

function fateText(e) {
  switch (e.fate) {
    case 'sending': return 'sending…';
    case 'waiting': return e.reason === 'moderation' ? 'waiting for moderation…' : 'sending…';
    case 'unknown': return 'it is not known whether it was sent';
    case 'sent': return 'sent';
    case 'shown': return 'shown';
    case 'kept': return 'kept and not shown';
    case 'refused': {
      const wait = e.retryAfterMs === undefined ? '' : `, try again in ${Math.ceil(e.retryAfterMs / 1000)} s`;
      return `not sent: ${reasonText(e.reason)}${wait}`;
    }
    default: return '';
  }
}

/** What an answer answers: its author and how it begins, or that the page cannot say. */
function quote(parent) {
  const line = document.createElement('blockquote');
  if (parent.user) {
    line.append(span('who', shownAs(parent.user)), document.createTextNode(cut(parent.body)));
  } else {
    line.className = 'unknown';
    line.textContent = parent.retracted ? 'Answer to a comment that was removed' : 'Answer to an earlier comment';
  }
  return line;
}

function replyButton(e) {
  const button = document.createElement('button');
  // Its word is the style sheet's: the line reads, and is copied, without it.
  button.type = 'button';
  button.className = 'reply';
  button.setAttribute('aria-label', `Reply to ${shownAs(e.user)}`);
  button.addEventListener('click', () => reply(e.id));
  return button;
}

function draw(li, e) {
  const focused = li.contains(document.activeElement);
  li.replaceChildren();
  li.className = '';
  if (e.type === 'score') {
    li.className = `event ${/goal|penalty$/.test(e.score.kind ?? '') ? 'goal' : ''}`;
    li.textContent = `${e.score.match_id} · ${scoreLine(e.score)}`;
  } else if (e.type === 'gift') {
    const combo = e.gift.gifts > 1;
    li.className = combo ? 'event gift combo' : 'event gift';
    li.append(span('giver', shownAs(e.gift.user, 'Someone')),
      document.createTextNode(` sent ${e.gift.item} `), span('times', `×${e.gift.count ?? 1}`));
    if (e.gift.amount_micros > 0) li.append(span('amount', money(e.gift.amount_micros, e.gift.currency)));
  } else if (e.type === 'config' || e.type === 'skipped') {
    li.className = 'event';
    li.textContent = e.type === 'config' ? configLine(e.config) : `${e.count} comments passed over: this connection was too slow for them.`;
  } else if (e.retracted) {
    li.className = 'retracted';
    li.textContent = e.reason ? `Removed: ${e.reason}` : 'Removed';
  } else {
    if (e.mine) li.className = e.fate === 'refused' ? 'mine refused' : 'mine';
    if (e.parent) li.append(quote(e.parent));
    const who = span('who', shownAs(e.user));
    who.style.setProperty('color', `hsl(${hue(e.user?.id ?? who.textContent)} 60% var(--who-light, 40%))`);
    li.append(span('time', e.ts ? time.format(new Date(e.ts)) : ''));
    for (const badge of e.user?.badges ?? []) li.append(span('badge', badge));
    // In its own direction, whatever its author's name runs like.
    const body = document.createElement('bdi');
    body.textContent = e.body;
    li.append(who, body);
    if (e.repeats > 0) {
      const times = span('repeats', `×${e.repeats + 1}`);
      times.title = `${e.repeats} others said the same`;
      li.append(times);
    }
    if (e.fate) li.append(span('fate', fateText(e)));
    // Who has no id yet cannot be answered.
    if (e.id !== undefined) li.append(replyButton(e));
  }
  // Who stood on a button of this line still does, or on the list when it has none any more.
  if (focused) (li.querySelector('button.reply') ?? feed).focus({ preventScroll: true });
}

function paint() {
  const changed = dirty;
  dirty = new Set();
  if (changed.has('head')) {
    el('title').textContent = store.title;
    document.title = `${store.title} · Grandstand`;
  }
  if (changed.has('head') || changed.has('counters')) {
    const sampled = sampledText(store);
    el('sampled').hidden = sampled === null;
    el('sampled').title = sampled ?? '';
  }
  if (changed.has('counters')) paintCounters();
  if (changed.has('scores')) paintScores();
  if (changed.has('banners')) paintBanners();
  if (!changed.has('entries')) return;
  if (replyingTo !== null && store.isRetracted(replyingTo.id)) {
    reply(null);
    say('The comment you were answering was removed.', 'warn');
  }
  const before = feed.scrollHeight - feed.scrollTop;
  const wanted = new Set(store.entries);
  for (const [entry, li] of nodes) {
    if (!wanted.has(entry)) { li.remove(); nodes.delete(entry); }
  }
  let added = 0;
  let at = feed.firstElementChild;
  for (const entry of store.entries) {
    let li = nodes.get(entry);
    const stamp = `${entry.version}`;
    if (!li) {
      li = document.createElement('li');
      draw(li, entry);
      li.dataset.stamp = stamp;
      nodes.set(entry, li);
      if (entry.type === 'comment' && !entry.mine) added += 1;
    } else if (li.dataset.stamp !== stamp) {
      draw(li, entry);
      li.dataset.stamp = stamp;
    }
    if (li === at) at = at.nextElementSibling;
    else feed.insertBefore(li, at);
  }
  if (pinned) {
    feed.scrollTop = feed.scrollHeight;
  } else {
    feed.scrollTop = Math.max(0, feed.scrollHeight - before - addedHeight(added));
    unread += added;
    pill.textContent = `${unread} new`;
    pill.hidden = unread === 0;
  }
}

/** Height of the last `n` entries: how far the picture must not move while the reader looks back. */
function addedHeight(n) {
  let height = 0;
  for (let li = feed.lastElementChild; li && n > 0; li = li.previousElementSibling, n -= 1) height += li.offsetHeight;
  return height;
}

const short = new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 });

function paintCounters() {
  const { viewers } = store.counters;
  el('watching').hidden = typeof viewers !== 'number';
  el('watching').textContent = `${short.format(viewers ?? 0)} watching`;
  const likes = likesShown(store);
  const total = likes.reduce((sum, [, n]) => sum + n, 0);
  el('likes').textContent = short.format(total);
  el('like').title = likes.map(([kind, n]) => `${kind} ${n}`).join(', ');
  el('like').setAttribute('aria-label', `Like. ${total} likes so far`);
}

function paintScores() {
  const board = store.scores;
  scores.hidden = board.length === 0;
  scores.replaceChildren(...board.map((s) => {
    const line = document.createElement('div');
    const stamp = `${s.event_id}:${s.revision}`;
    line.className = scoreSeen.has(s.match_id) && scoreSeen.get(s.match_id) !== stamp ? 'score flash' : 'score';
    if (line.className.includes('flash')) el('latest').textContent = `${s.match_id}: ${scoreLine(s)}`;
    scoreSeen.set(s.match_id, stamp);
    line.append(span('figures', `${s.score.home} – ${s.score.away}`), span('match', s.match_id), ...scoreMarks(s).map((mark) => span('mark', mark)));
    return line;
  }));
}

let bannersEnd;
/** The newest banner, and how many stand behind it. */
function paintBanners() {
  clearTimeout(bannersEnd);
  const all = store.banners(Date.now());
  const bar = el('banners');
  bar.hidden = all.length === 0;
  if (all.length === 0) { bar.replaceChildren(); return; }
  const [newest, ...others] = all;
  const lead = document.createElement('span');
  lead.className = 'banner-text';
  lead.textContent = newest.body;
  const parts = [lead];
  if (newest.source_room_id !== undefined && newest.source_room_id !== roomId) {
    const link = document.createElement('a');
    link.href = `/rooms/${encodeURIComponent(newest.source_room_id)}`;
    link.textContent = newest.source_room_id;
    // The frame belongs to another page: that room opens beside it.
    if (document.body.classList.contains('embed')) Object.assign(link, { target: '_blank', rel: 'noopener' });
    parts.push(link);
  }
  if (others.length > 0) parts.push(span('more', `+${others.length}`));
  bar.replaceChildren(...parts);
  const next = Math.min(...all.map((b) => Date.parse(b.until_ts)));
  // Rounded up: just before its end it would still stand. A timer holds 24 days at most, a banner one.
  bannersEnd = setTimeout(() => { dirty.add('banners'); paintSoon(); }, Math.max(0, next - Date.now()) + 50);
}

feed.addEventListener('scroll', () => {
  pinned = feed.scrollHeight - feed.scrollTop - feed.clientHeight < 48;
  if (pinned) { unread = 0; pill.hidden = true; }
}, { passive: true });
pill.addEventListener('click', () => { pinned = true; unread = 0; pill.hidden = true; feed.scrollTop = feed.scrollHeight; });
new ResizeObserver(() => { if (pinned) feed.scrollTop = feed.scrollHeight; }).observe(feed);
document.addEventListener('visibilitychange', () => { if (!document.hidden) paintSoon(); });

// ---- what the room tells
room.on('event', (e) => wall.event(e));
room.on('change', (parts) => {
  for (const part of parts) dirty.add(part);
  paintSoon();
});

let countdown;
/** How it stands with the stream; a wait is counted down. */
function paintStatus(status) {
  clearInterval(countdown);
  stateTag.dataset.state = status.state;
  stateTag.textContent = statusText(status);
  if (status.wait_ms > 1500) {
    const until = Date.now() + status.wait_ms;
    countdown = setInterval(() => { stateTag.textContent = statusText({ ...status, wait_ms: Math.max(0, until - Date.now()) }); }, 1000);
  }
}

room.on('status', (status) => {
  paintStatus(status);
  if (status.state === 'live' && note.textContent === NOT_CONNECTED) say('');
  if (status.state === 'stopped') {
    say(`This room can't be watched: ${status.reason || `code ${status.code}`}`, 'bad');
    if (guest && status.code === 4003) keep('grandstand.guest', null);
  }
});

// ---- the composer
function say(what, kind) {
  note.textContent = what;
  if (kind) note.dataset.kind = kind; else delete note.dataset.kind;
}

/** What is being answered; a copy, as it may leave the page meanwhile. */
let replyingTo = null;

/** The next comment answers this event; `null`: nobody. */
function reply(id) {
  const parent = id === null ? null : store.answerable(id);
  replyingTo = parent;
  el('replying').hidden = parent === null;
  if (parent === null) { el('replying-to').replaceChildren(); return; }
  el('replying-to').replaceChildren(document.createTextNode('Replying to '), span('who', shownAs(parent.user)),
    span('quoted', cut(parent.body)));
  text.focus();
}

el('reply-cancel').addEventListener('click', () => { reply(null); text.focus(); });

function publish(body) {
  const { id } = replyingTo ?? {};
  reply(null);
  pinned = true;
  const key = room.publish(body, { ...(id !== undefined && { reply_to: id }), user: { id: guest.id, display: guest.name, badges: [] } });
  wall.own(key, guest.id, body);
  if (room.status.state === 'live') say('');
  else say(NOT_CONNECTED, 'warn');
}

/** Whether there is somebody to speak as: a name that was chosen makes one, however often it is asked meanwhile. */
async function somebody() {
  if (guest) return true;
  const name = nameInput.value.trim();
  if (name === '') { say('Choose a name first.', 'warn'); nameInput.focus(); return false; }
  entering ??= becomeGuest(name).finally(() => { entering = null; });
  await entering;
  say('');
  return true;
}

// ---- likes: the package gathers them; what is shown is what the room counts
el('like').addEventListener('click', async () => {
  try {
    if (!await somebody()) return;
    room.like();
    el('like').classList.remove('tapped');
    requestAnimationFrame(() => el('like').classList.add('tapped'));
  } catch (fault) {
    say(fault.message, 'bad');
  }
});

el('composer').addEventListener('submit', async (event) => {
  event.preventDefault();
  const body = text.value.trim();
  if (body === '') return;
  try {
    if (!await somebody()) return;
    text.value = '';
    text.style.height = '';
    publish(body);
  } catch (fault) {
    say(fault.message, 'bad');
  }
});
text.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); el('composer').requestSubmit(); }
  if (event.key === 'Escape' && replyingTo !== null && !event.isComposing) { event.preventDefault(); reply(null); }
});
text.addEventListener('input', () => { text.style.height = ''; text.style.height = `${Math.min(128, text.scrollHeight + 2)}px`; });

// ---- start
el('title').textContent = roomId;
room.start();
