// What viewers reported in a room, the most reported first: each can be taken under the moderation keys like a comment of the feed.

import { count, following } from './console-model.js';
import { Queue } from './console-queue.js';
import { h } from './words.js';

const time = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });
/** The server keeps 1 024 of a room; so many are shown, and texts looked up. */
const SHOWN = 30;
/** Texts that are not in the feed any more are asked for a few at a time. */
const LOOKS = 5;

export class Reports extends Queue {
  /**
   * `given`: {api, id: the room, known(eventId) -> the feed's comment, gone(eventId) -> whether the feed knows that it was taken back,
   * aim(comment) puts one under the keys, retract(comments) and ban(users): what the buttons do}.
   */
  constructor(given) {
    super(given, { name: 'reports', label: 'Reports by viewers' });
    this.reports = [];
    this.current = null;
    /** Comments by id that were looked up; `null`: it is not there. */
    this.found = new Map();
  }

  get there() { return this.api.has('/admin/rooms/{room}/reports', 'get'); }

  async turn() {
    if (!this.there) return;
    // The feed may know of a retract before the server's list does.
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
    const n = this.reports.length;
    const shown = this.reports.slice(0, SHOWN).map((report) => ({ report, comment: this.comment(report.event_id) }));
    this.show({
      n, title: `Reported: ${n}`, note: n > SHOWN ? `The ${SHOWN} most reported are shown.` : '', scroll,
      seen: [this.current, n, shown.map(({ report, comment }) => [report, comment?.body])],
      lines: () => shown.map(({ report, comment }) => this.report(report, comment ?? unknown(report.event_id))),
    });
  }

  report(r, comment) {
    const reasons = Object.entries(r.reasons).sort(([, a], [, b]) => b - a).slice(0, 4).map(([why, n]) => (n > 1 ? `${why} ×${n}` : why)).join(', ');
    return this.line({
      name: 'report', id: r.event_id, current: r.event_id === this.current, user: comment.user, body: comment.body,
      note: [h('strong', {}, count(r.count, 'user')), ': ', h('bdi', {}, reasons), `, last at ${time.format(new Date(r.last_ts))}`],
      buttons: [
        { letter: 'c', text: 'Choose', run: () => this.choose(r.event_id) },
        { letter: 'r', text: 'Retract', run: () => this.retract([comment]), kind: 'danger' },
        ...(comment.user ? [{ letter: 'b', text: 'Ban', run: () => this.ban([comment.user]), kind: 'danger' }] : []),
      ],
    });
  }

  choose(event) {
    this.current = event;
    this.aim(this.comment(event) ?? unknown(event));
    this.paint(true);
  }

  /** The next under the keys. */
  next() { this.choose(following(this.reports.slice(0, SHOWN).map((r) => r.event_id), this.current)); }

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

/** A comment whose text cannot be had. */
function unknown(event) {
  return { id: event, body: `event ${event}` };
}
