// Something that waits in a line beside the feed: a card that is there only while something does.

import { repaint } from './console-desk.js';
import { h, shownAs } from './words.js';

export class Queue {
  /** `given`: what this kind needs. `name`: of the card; `list`: `ul` where the order says nothing. */
  constructor(given, { name, label, list = 'ol' }) {
    Object.assign(this, given);
    this.seen = '';
    this.title = h('h2');
    this.list = h(list, { class: 'queue' });
    this.note = h('p', { class: 'note' });
    this.root = h('section', { class: 'card', id: name, 'aria-label': label, hidden: true }, this.title, this.list, this.note);
  }

  /**
   * `n`: how many wait; `lines()`: those that are painted; `seen`: all that the picture is made of. The same is not painted twice: whoever
   * reads or has the focus is left alone. `scroll`: into view with the current one.
   */
  show({ n, title, note, seen, lines, scroll = false }) {
    const all = JSON.stringify(seen);
    if (all === this.seen) return;
    this.seen = all;
    this.root.hidden = n === 0;
    this.title.textContent = title;
    this.note.textContent = note;
    repaint(this.list, lines());
    if (scroll) this.list.querySelector('.current')?.scrollIntoView({ block: 'nearest' });
  }

  /** A comment of one: who said it, where that is known, a note, and `buttons` of `{letter, text, run, kind?, hint?}`, `hint` showing the letter. */
  line({ name, id, current, user, body, note, buttons }) {
    return h('li', { class: current ? 'current' : null, [`data-${name}`]: id, 'aria-current': current ? 'true' : null },
      h('p', { class: 'queue-text' }, user ? [h('bdi', { class: 'queue-who' }, shownAs(user)), ' '] : null, h('bdi', {}, body)),
      h('p', { class: 'note' }, ...note),
      h('div', { class: 'row' }, buttons.map(({ letter, text, run, kind, hint }) => h('button', {
        type: 'button', class: kind, 'data-key': `${letter}${id}`, 'aria-label': `${text}: ${body}`, onclick: run,
      }, text, hint ? h('kbd', {}, letter) : null))));
  }
}
