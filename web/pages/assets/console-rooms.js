// Every room the operator may act in: who watches, what is said, what viewers were not given, each with a small line of its past.

import { SAMPLES_MAX, buckets, count, line, measure, quantile } from './console-model.js';
import { h } from './words.js';

const EVERY_MS = 2000;
const ROOMS_SHOWN = 100;
/** Metrics are a long page: they are read at every fifth turn, and seven readings are a minute. */
const METRICS_TURNS = 5;
const METRICS_KEPT = 7;
const SVG = 'http://www.w3.org/2000/svg';
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

/** A line of the last three minutes, with what it shows in words. */
export function chart(values, label, width = 120, height = 28) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('class', 'chart');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', label);
  svg.setAttribute('preserveAspectRatio', 'none');
  const drawn = document.createElementNS(SVG, 'polyline');
  drawn.setAttribute('points', line(values, width, height, SAMPLES_MAX));
  svg.append(drawn);
  return svg;
}

export class RoomsView {
  constructor({ api, root, go, histories, faulted }) {
    Object.assign(this, { api, go, histories, faulted });
    this.text = '';
    this.rows = new Map();
    this.body = h('tbody');
    this.note = h('p', { class: 'note', role: 'status' }, 'Loading…');
    this.tiles = h('div', { class: 'tiles' });
    const look = h('input', { type: 'search', id: 'look', placeholder: 'Find by id or title', 'aria-label': 'Find rooms', oninput: () => { this.text = look.value.trim(); this.soon(); } });
    const head = ['Room', 'State', 'Viewers', 'Comments/s', 'Sampled/s', 'Skipped/s'];
    root.append(
      h('div', { class: 'view-head' }, h('h1', {}, 'Rooms'), look),
      this.tiles,
      h('table', { class: 'rooms-table' }, h('thead', {}, h('tr', {}, head.map((text, i) => h('th', { scope: 'col', class: i > 1 ? 'number' : null }, text)))), this.body),
      this.note);
    this.before = null;
    this.p99 = null;
    this.turn();
  }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.turn(), 200);
  }

  async turn() {
    clearTimeout(this.timer);
    const asked = this.text;
    try {
      const [{ rooms, found }] = await Promise.all([this.api.rooms({ order: 'viewers', limit: ROOMS_SHOWN, q: asked }), this.latency()]);
      if (this.stopped) return;
      if (asked === this.text) this.paint(rooms, found);
      this.faulted(null);
    } catch (fault) {
      if (this.stopped) return;
      this.faulted(fault);
    }
    this.timer = setTimeout(() => this.turn(), EVERY_MS);
  }

  /** The delivery time of all rooms, where the metrics are on this address; else it is not shown. */
  async latency() {
    this.turns = (this.turns ?? -1) + 1;
    if (this.noMetrics || this.turns % METRICS_TURNS > 0) return;
    const response = await fetch('/metrics', { cache: 'no-store' }).catch(() => null);
    if (!response?.ok) { this.noMetrics = response !== null; this.p99 = null; return; }
    const now = buckets(await response.text(), 'grandstand_gateway_delivery_seconds', (labels) => labels.includes('lane="comment"'));
    this.kept = [...(this.kept ?? []), now].slice(-METRICS_KEPT);
    this.p99 = quantile(this.kept[0], now, 0.99);
  }

  paint(rooms, found) {
    const at = performance.now();
    const wanted = new Set(rooms.map((r) => r.room_id));
    for (const [id, row] of this.rows) if (!wanted.has(id)) { row.remove(); this.rows.delete(id); }
    const sums = { viewers: 0, rate: 0, sampled: 0, skipped: 0 };
    let place = this.body.firstElementChild;
    for (const room of rooms) {
      const history = measure(this.histories.get(room.room_id) ?? [], room.counters, at);
      this.histories.set(room.room_id, history);
      const now = history.at(-1);
      for (const key of Object.keys(sums)) sums[key] += now[key];
      let row = this.rows.get(room.room_id);
      if (!row) { row = h('tr', { 'data-room': room.room_id }); this.rows.set(room.room_id, row); }
      // Only what changed its place is moved: a moved row loses the focus.
      if (row === place) place = place.nextElementSibling;
      else this.body.insertBefore(row, place);
      this.draw(row, room, history);
    }
    while (this.histories.size > 1000) this.histories.delete(this.histories.keys().next().value);
    const tile = (name, value, hint) => h('div', { class: 'tile', title: hint }, h('span', { class: 'tile-value' }, value), h('span', { class: 'tile-name' }, name));
    const many = (n) => (n >= 10 ? short.format(Math.round(n)) : Number(n.toFixed(1)).toString());
    this.tiles.replaceChildren(
      tile('rooms', short.format(found)), tile('viewers', short.format(sums.viewers)), tile('comments/s', many(sums.rate)),
      tile('sampled/s', many(sums.sampled), 'Comments of wide rooms that were not a viewer’s part, over all viewers'),
      tile('skipped/s', many(sums.skipped), 'Comments passed over for slow viewers, and told'),
      ...(this.p99 === null || this.p99 === undefined ? [] : [tile('p99 delivery', this.p99 === Infinity ? 'over 10 s' : `≤ ${Math.round(this.p99 * 1000)} ms`, 'Of all rooms together, last minute: from the log to the viewers’ sockets')]));
    this.note.textContent = rooms.length === 0
      ? (this.text ? `No room with “${this.text}”.` : 'No room yet.')
      : found > rooms.length ? `The ${rooms.length} most watched of ${count(found, 'room')}. Find others by id or title.` : '';
  }

  draw(row, room, history) {
    const now = history.at(-1);
    const many = (n) => (n >= 10 ? short.format(Math.round(n)) : n === 0 ? '0' : n.toFixed(1));
    const value = (name, label) => h('td', { class: 'number', 'data-label': label },
      name === 'viewers' || name === 'rate' ? chart(history.map((s) => s[name]), `${label}, last three minutes`) : null,
      h('span', { class: 'value' }, name === 'viewers' ? short.format(now.viewers) : many(now[name])));
    const marks = [room.slow_mode_seconds > 0 ? h('span', { class: 'mark' }, `slow ${room.slow_mode_seconds} s`) : null,
      room.listed ? null : h('span', { class: 'mark' }, 'unlisted')];
    const focused = row.contains(document.activeElement);
    const link = h('a', { href: `#/room/${encodeURIComponent(room.room_id)}`, class: 'room-link' }, h('bdi', {}, room.title || room.room_id));
    row.replaceChildren(
      h('th', { scope: 'row' }, link, room.title && room.title !== room.room_id ? h('span', { class: 'id' }, room.room_id) : null),
      h('td', { 'data-label': 'State' }, h('span', { class: 'state-name', 'data-state': room.state }, room.state), marks),
      value('viewers', 'Viewers'), value('rate', 'Comments/s'), value('sampled', 'Sampled/s'), value('skipped', 'Skipped/s'));
    if (focused) link.focus();
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  keys() { return [['/', 'find a room']]; }

  key(key) {
    if (key !== '/') return false;
    document.getElementById('look').focus();
    return true;
  }
}
