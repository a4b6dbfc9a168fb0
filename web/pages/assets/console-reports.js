// What viewers reported in a room, the most reported first: each can be taken under the moderation keys like a comment of the feed.

import { repaint } from './console-desk.js';
import { count } from './console-model.js';
import { h } from './words.js';

const time = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
/** The server keeps 1 024 of a room; so many are shown, and texts looked up. */
const SHOWN = 30;
/** Texts that are not in the feed any more are asked for a few at a time. */
const LOOKS = 5;

export class Reports {
  /** `known(eventId)`: the feed's comment with this id; `gone(eventId)`: the feed knows that it was taken back. `aim(comment)`: puts one under the keys; `retract`, `ban`: what the buttons do. */
  constructor({ api, id, known, gone, aim, retract, ban }) {
    Object.assign(this, { api, id, known, gone, aim, retract, ban });
    this.reports = [];
    this.current = null;
    /** Comments by id that were looked up; `null`: it is not there. */
    this.found = new Map();
    this.seen = '';
    this.title = h('h2', {}, 'Reports');
    this.list = h('ol', { class: 'queue' });
    this.note = h('p', { class: 'note' });
    this.root = h('section', { class: 'card', id: 'reports', 'aria-label': 'Reports by viewers', hidden: true }, this.title, this.list, this.note);
  }

  get there() { return this.api.has('/admin/rooms/{room}/reports', 'get'); }

  async turn() {
    if (!this.there) return;
    // A report does not say whose event it is of, so the server lists what was taken back with its author.
    const reports = (await this.api.reports(this.id)).reports.filter((r) => !this.gone(r.event_id));
    this.reports = reports;
    if (!reports.some((r) => r.event_id === this.current)) this.current = null;
    this.paint();
    const ids = new Set(reports.map((r) => r.event_id));
    for (const id of this.found.keys()) if (!ids.has(id)) this.found.delete(id);
    const lacking = reports.slice(0, SHOWN).filter((r) => !this.comment(r.event_id) && this.found.get(r.event_id) === undefined).slice(0, LOOKS);
    for (const { event_id: event } of lacking) await this.look(event);
    if (lacking.length > 0) this.paint();
  }

  /** Asks for the page of the past that ends with it. */
  async look(event) {
    const page = await this.api.snapshot(this.id, `?before=${event + 1}&limit=1`).catch(() => null);
    const comment = page?.recent_comments?.find((c) => c.event_id === event);
    this.found.set(event, comment ? { id: event, user: comment.user, body: comment.body, ts: comment.ts } : null);
  }

  comment(event) { return this.known(event) ?? this.found.get(event) ?? null; }

  paint(scroll = false) {
    const shown = this.reports.slice(0, SHOWN).map((r) => ({ ...r, comment: this.comment(r.event_id) }));
    const seen = JSON.stringify([this.current, this.reports.length, shown.map((r) => [r, r.comment?.body])], (key, value) => (key === 'comment' ? undefined : value));
    if (seen === this.seen) return;
    this.seen = seen;
    this.root.hidden = this.reports.length === 0;
    this.title.textContent = `Reported: ${this.reports.length}`;
    this.note.textContent = this.reports.length > SHOWN ? `The ${SHOWN} most reported are shown.` : '';
    repaint(this.list, shown.map((r) => this.line(r)));
    if (scroll) this.list.querySelector('.current')?.scrollIntoView({ block: 'nearest' });
  }

  line(r) {
    const current = r.event_id === this.current;
    const comment = r.comment ?? { id: r.event_id, body: `event ${r.event_id}` };
    const reasons = Object.entries(r.reasons).sort(([, a], [, b]) => b - a).slice(0, 4).map(([why, n]) => (n > 1 ? `${why} ×${n}` : why)).join(', ');
    const act = (key, text, run, kind) => h('button', { type: 'button', class: kind, 'data-key': `${key}${r.event_id}`, 'aria-label': `${text}: ${comment.body}`, onclick: run }, text);
    return h('li', { class: current ? 'current' : null, 'data-report': r.event_id, 'aria-current': current ? 'true' : null },
      h('p', { class: 'queue-text' }, comment.user ? [h('bdi', { class: 'queue-who' }, comment.user.display ?? comment.user.id), ' '] : null, h('bdi', {}, comment.body)),
      h('p', { class: 'note' }, h('strong', {}, count(r.count, 'user')), ': ', h('bdi', {}, reasons), `, last at ${time.format(new Date(r.last_ts))}`),
      h('div', { class: 'row' }, act('c', 'Choose', () => this.choose(r.event_id)), act('r', 'Retract', () => this.retract([comment]), 'danger'),
        comment.user ? act('b', 'Ban', () => this.ban([comment.user]), 'danger') : null));
  }

  choose(event) {
    this.current = event;
    this.aim(this.comment(event) ?? { id: event, body: `event ${event}` });
    this.paint(true);
  }

  /** The next under the keys. */
  next() {
    if (this.reports.length === 0) return;
    const at = this.reports.findIndex((r) => r.event_id === this.current);
    this.choose(this.reports[(at + 1) % Math.min(this.reports.length, SHOWN)].event_id);
  }

  /** Another comment is under the keys. */
  leave() {
    if (this.current === null) return;
    this.current = null;
    this.paint();
  }

  keys() { return this.there ? [['v', 'the next that viewers reported']] : []; }

  key(key) {
    if (key !== 'v' || this.reports.length === 0) return false;
    this.next();
    return true;
  }
}
