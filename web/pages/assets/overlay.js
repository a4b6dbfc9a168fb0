// A room to lay over a picture: the newest lines, the score, banners. It only looks on. Names of classes are a promise
// (docs/overlay.md); the server has judged the parameters before the page came.

import { Room } from './grandstand-client.js';
import { hue, money, scoreMarks, shownAs, span } from './words.js';

const roomId = decodeURIComponent(location.pathname.split('/')[2] ?? '');
const asked = new URLSearchParams(location.search);
const theme = asked.get('theme') ?? 'dark';
const linesMax = Number(asked.get('max') ?? 12);
/** 0: lines stay until newer ones push them out. */
const fadeMs = Number(asked.get('fade') ?? 0) * 1000;
/** How long a line takes to go; the sheet's transition is shorter. */
const FADING_MS = 700;

// A room that is not open to everyone is entered by a ticket, in the part of the address that no server and no log sees.
const ticket = new URLSearchParams(location.hash.slice(1)).get('ticket');
if (ticket) history.replaceState(null, '', location.pathname + location.search);

/** A browser cannot set a header on a WebSocket: its ticket goes into the address, and so must the cursor, as who brings one is greeted at once. */
class Ticketed extends WebSocket {
  constructor(url, protocols) {
    const at = new URL(url);
    at.searchParams.set('ticket', ticket);
    if (room.cursor > 0) at.searchParams.set('last_event_id', room.cursor);
    super(at, protocols);
  }
}

// It begins from the room's picture each time: a reload of a source is a new start.
const room = new Room({
  room: roomId, share: false, storage: null, reconnect_hidden: true,
  ...(ticket && { rungs: ['websocket'], env: { WebSocket: Ticketed } }),
});
const { store } = room;
const [title, feed, scores, banners, note] = ['title', 'feed', 'scores', 'banners', 'note'].map((id) => document.getElementById(id));
document.body.classList.add(`gs-theme-${theme}`);
title.textContent = roomId;

/** Entry to its line, and when it was last news. */
const lines = new Map();
const scoreSeen = new Map();
/** What was said before the overlay came: where lines fade, it is over. */
const before = new WeakSet();
let painting = false;
let next;

function paintSoon() {
  if (painting) return;
  painting = true;
  requestAnimationFrame(() => { painting = false; paint(); });
}

function draw(li, e) {
  li.replaceChildren();
  delete li.dataset.badges;
  if (e.retracted) {
    li.className = 'gs-item gs-removed';
    li.textContent = e.reason ? `Removed: ${e.reason}` : 'Removed';
    return;
  }
  const user = e.type === 'gift' ? e.gift.user : e.user;
  // Names and texts each run in their own direction, the line in the text's.
  const name = document.createElement('bdi');
  name.className = 'gs-name';
  name.textContent = shownAs(user, e.type === 'gift' ? 'Someone' : 'someone');
  name.style.setProperty('--gs-hue', hue(user?.id ?? name.textContent));
  if (e.type === 'gift') {
    li.className = e.gift.gifts > 1 ? 'gs-item gs-gift gs-combo' : 'gs-item gs-gift';
    li.dataset.item = e.gift.item;
    li.append(name, span('gs-separator', ' '), span('gs-gift-item', e.gift.item), span('gs-count', `×${e.gift.count ?? 1}`));
    if (e.gift.amount_micros > 0) li.append(span('gs-amount', money(e.gift.amount_micros, e.gift.currency)));
    return;
  }
  li.className = 'gs-item gs-comment';
  const badges = e.user?.badges ?? [];
  if (badges.length > 0) li.dataset.badges = badges.join(' ');
  li.append(...badges.map((badge) => span('gs-badge', badge)), name, span('gs-separator', ': '), span('gs-body', e.body));
  if (e.repeats > 0) li.append(span('gs-repeats', `×${e.repeats + 1}`));
}

function paint() {
  const now = performance.now();
  document.title = `${store.title} · overlay`;
  title.textContent = store.title;
  // Lines that are over go, whatever the room still knows of them.
  const wanted = store.entries.filter((e) => (e.type === 'comment' || e.type === 'gift') && !before.has(e)).slice(-linesMax);
  const keep = new Set(wanted);
  for (const [e, line] of lines) {
    if (!keep.has(e)) { line.li.remove(); lines.delete(e); }
  }
  let at = feed.firstElementChild;
  let due = Infinity;
  for (const e of wanted) {
    let line = lines.get(e);
    if (!line) {
      line = { li: document.createElement('li'), since: now, version: null };
      line.li.dir = 'auto';
      lines.set(e, line);
    }
    if (line.version !== e.version) {
      draw(line.li, e);
      // A gift that is counted on is news again; what was taken back is not.
      if (line.version !== null && !e.retracted) line.since = now;
      line.version = e.version;
    }
    const age = now - line.since;
    if (fadeMs > 0) {
      line.li.classList.toggle('gs-fading', age >= fadeMs);
      if (age >= fadeMs + FADING_MS) { line.li.remove(); continue; }
      due = Math.min(due, (age >= fadeMs ? fadeMs + FADING_MS : fadeMs) - age);
    }
    if (line.li === at) at = at.nextElementSibling;
    else feed.insertBefore(line.li, at);
  }
  paintScores();
  const until = paintBanners();
  clearTimeout(next);
  // Just before its time a line would still stand.
  if (Math.min(due, until) < Infinity) next = setTimeout(paintSoon, Math.max(0, Math.min(due, until)) + 20);
}

function paintScores() {
  const board = store.scores;
  scores.hidden = board.length === 0;
  const stamps = board.map((s) => `${s.match_id} ${s.event_id}:${s.revision} ${s.silentSince ?? ''}`).join('\n');
  if (scores.dataset.stamps === stamps) return;
  scores.dataset.stamps = stamps;
  scores.replaceChildren(...board.map((s) => {
    const line = document.createElement('div');
    const stamp = `${s.event_id}:${s.revision}`;
    line.className = scoreSeen.has(s.match_id) && scoreSeen.get(s.match_id) !== stamp ? 'gs-score gs-changed' : 'gs-score';
    scoreSeen.set(s.match_id, stamp);
    line.append(span('gs-figures', `${s.score.home} – ${s.score.away}`), span('gs-match', s.match_id), ...scoreMarks(s).map((mark) => span('gs-mark', mark)));
    return line;
  }));
}

/** Gives the milliseconds until one of them is over. */
function paintBanners() {
  const all = store.banners(Date.now());
  banners.hidden = all.length === 0;
  const ids = all.map((b) => b.banner_id).join(' ');
  if (banners.dataset.ids !== ids) {
    banners.dataset.ids = ids;
    // The newest three: a picture has room for no more.
    banners.replaceChildren(...all.slice(0, 3).map((b) => {
      const line = document.createElement('div');
      line.className = 'gs-banner';
      line.textContent = b.body;
      return line;
    }));
  }
  return Math.min(...all.map((b) => Date.parse(b.until_ts) - Date.now()), Infinity);
}

/** What whoever sets the overlay up has to know; an empty text takes it away. */
function say(what) {
  note.textContent = what;
  note.hidden = what === '';
}

let isLive = false;
room.on('change', () => {
  // The picture it begins with comes before the stream.
  if (fadeMs > 0 && !isLive) for (const e of store.entries) before.add(e);
  paintSoon();
});
room.on('status', ({ state, code, reason }) => {
  document.body.dataset.state = state;
  if (state === 'live') { isLive = true; say(''); }
  // A ticket is good for one stream and its resumes; where it has ended, only another one helps.
  else if (ticket && code === 4101) { room.stop(); say('The ticket has ended: this overlay needs a new one.'); }
  else if (state === 'stopped' && !ticket && code === 4003) say('This room is not open to everyone: the overlay needs a ticket (docs/overlay.md).');
  else if (state === 'stopped') say(`This room can't be shown: ${reason || `code ${code}`}`);
});
room.start();
