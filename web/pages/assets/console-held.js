// What waits for a moderator's word in a room: one at a time under the keys, and there only while something waits.

import { stays } from './console-model.js';
import { repaint } from './console-desk.js';
import { h, span } from './words.js';

const time = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
/** The server holds 512 of a room; so many are painted, the oldest. */
const SHOWN = 50;

export class Held {
  /** `id`: the room. `audience()`: how many see it. `decided()` is called when something was. */
  constructor({ api, acts, id, audience, decided }) {
    Object.assign(this, { api, acts, id, audience, decided });
    this.held = [];
    this.current = null;
    this.seen = '';
    this.title = h('h2', { 'aria-live': 'polite' }, 'Held for review');
    this.list = h('ol', { class: 'queue' });
    this.note = h('p', { class: 'note' });
    this.root = h('section', { class: 'card', id: 'held', 'aria-label': 'Held for review', hidden: true }, this.title, this.list, this.note);
  }

  get there() { return this.api.has('/admin/rooms/{room}/held', 'get'); }

  async turn() {
    if (!this.there) return;
    const { held } = await this.api.held(this.id);
    const before = this.held.map((c) => c.held_id);
    this.current = stays(before, held.map((c) => c.held_id), this.current);
    this.held = held;
    this.paint();
  }

  paint(scroll = false) {
    // Twice the same is not painted twice: whoever reads or has the focus is left alone.
    const seen = JSON.stringify([this.current, this.held]);
    if (seen === this.seen) return;
    this.seen = seen;
    this.root.hidden = this.held.length === 0;
    this.title.textContent = `Held for review: ${this.held.length}`;
    this.note.textContent = this.held.length > SHOWN ? `The ${SHOWN} oldest are shown.` : '';
    repaint(this.list, this.held.slice(0, SHOWN).map((c) => this.line(c)));
    if (scroll) this.list.querySelector('.current')?.scrollIntoView({ block: 'nearest' });
  }

  line(c) {
    const current = c.held_id === this.current;
    const button = (key, letter, text, decision, kind) => h('button', { type: 'button', class: kind, 'data-key': `${letter}${c.held_id}`, 'aria-label': `${text}: ${c.body}`, onclick: () => this.decide(decision, c) },
      text, current ? h('kbd', {}, letter) : null);
    return h('li', { class: current ? 'current' : null, 'data-held': c.held_id, 'aria-current': current ? 'true' : null },
      h('p', { class: 'queue-text' }, h('bdi', { class: 'queue-who' }, c.user.display ?? c.user.id), ' ', h('bdi', {}, c.body)),
      h('p', { class: 'note' }, `${time.format(new Date(c.ts))}, refused at ${time.format(new Date(c.until_ts))}`, c.rule ? span('badge', c.rule) : null),
      h('div', { class: 'row' }, button('approve', 'a', 'Approve', 'approve', null), button('deny', 'd', 'Deny', 'deny', 'danger')));
  }

  /** The next of those that wait. */
  next() {
    if (this.held.length === 0) return;
    const at = this.held.findIndex((c) => c.held_id === this.current);
    this.current = this.held[(at + 1) % this.held.length].held_id;
    this.paint(true);
  }

  async decide(decision, comment = this.held.find((c) => c.held_id === this.current)) {
    if (!comment) return;
    const shows = decision === 'approve';
    const who = comment.user.display ?? comment.user.id;
    const did = await this.acts.perform({
      title: shows ? 'Show this comment?' : 'Deny this comment?',
      effects: [
        `“${comment.body}” by ${who} (${comment.user.id})`,
        shows ? `In ${this.id}: shown to ${this.audience()} as a new comment.` : 'Nobody is shown it, and its author is told that moderation refused it.',
      ],
      warning: shows ? null : 'It cannot be taken back: the author may only say it again.',
      danger: !shows,
      confirm: shows ? 'Approve' : 'Deny',
      steps: () => [{
        what: `${shows ? 'Approved' : 'Denied'} a comment by ${who}`,
        run: (justification) => this.api.decide(this.id, comment.held_id, { decision, justification }),
        // What is shown can be retracted, which is what taking an approval back comes to.
        undo: shows ? (answer) => (answer.event_id ? { what: 'Retract it for good', run: (justification) => this.api.moderate(this.id, 'retract', { event_id: answer.event_id, justification }) } : {}) : undefined,
      }],
    });
    if (did) this.decided();
  }

  keys() { return this.there ? [['n', 'the next that is held for review'], ['a', 'approve it'], ['d', 'deny it']] : []; }

  key(key) {
    if (this.held.length === 0) return false;
    if (key === 'n') this.next();
    else if (key === 'a') this.decide('approve');
    else if (key === 'd') this.decide('deny');
    else return false;
    return true;
  }
}
