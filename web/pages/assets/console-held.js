// What waits for a moderator's word in a room: one at a time under the keys, and there only while something waits.

import { following, stays } from './console-model.js';
import { Queue } from './console-queue.js';
import { shownAs, span } from './words.js';

const time = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
/** The server holds 512 of a room; so many are painted, the oldest. */
const SHOWN = 50;

export class Held extends Queue {
  /** `given`: {api, acts, id: the room, audience() -> how many see it, decided() when something was}. */
  constructor(given) {
    super(given, { name: 'held', label: 'Held for review' });
    this.held = [];
    this.current = null;
    this.title.setAttribute('aria-live', 'polite');
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
    const n = this.held.length;
    this.show({
      n, title: `Held for review: ${n}`, note: n > SHOWN ? `The ${SHOWN} oldest are shown.` : '', seen: [this.current, this.held], scroll,
      lines: () => this.held.slice(0, SHOWN).map((c) => this.comment(c)),
    });
  }

  comment(c) {
    const current = c.held_id === this.current;
    const button = (letter, text, decision, kind) => ({ letter, text, run: () => this.decide(decision, c), kind, hint: current });
    return this.line({
      name: 'held', id: c.held_id, current, user: c.user, body: c.body,
      note: [`${time.format(new Date(c.ts))}, refused at ${time.format(new Date(c.until_ts))}`, c.rule ? span('badge', c.rule) : null],
      buttons: [button('a', 'Approve', 'approve'), button('d', 'Deny', 'deny', 'danger')],
    });
  }

  /** The next of those that are painted: nothing is decided unseen. */
  next() {
    this.current = following(this.held.slice(0, SHOWN).map((c) => c.held_id), this.current);
    this.paint(true);
  }

  async decide(decision, comment = this.held.find((c) => c.held_id === this.current)) {
    if (!comment) return;
    const shows = decision === 'approve';
    const who = shownAs(comment.user);
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
