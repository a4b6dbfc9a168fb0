// Which tokens hold: what is revoked, and a declared outage of the identity provider.

import { Asking, repaint } from './console-desk.js';
import { remaining, seconds } from './console-model.js';
import { h, when } from './words.js';

const OUTAGES = [[900, '15 minutes'], [3600, '1 hour'], [7200, '2 hours'], [21_600, '6 hours'], [43_200, '12 hours'], [86_400, '1 day']];
const REVOKED = [[3600, '1 hour'], [86_400, '1 day'], [2_592_000, '30 days'], [34_560_000, '400 days']];
/** The shortest outage, and the shortest revocation, that there is. */
const SECONDS_MIN = 60;
/** What is revoked by a name, and what that comes to. */
const WHAT = {
  user: (name) => [`Every token of the user ${name} that was issued up to now is refused. One issued later is taken: to keep the user out, ban it.`, 'Its open streams are closed with 4003 within a second.'],
  session: (name) => [`Every token of the session ${name} is refused, whenever it was issued.`, 'Its open streams are closed with 4003 within a second.'],
  key: (name) => [`Every token that the key ${name} signed is refused, whoever has it.`, 'Their streams are closed with 4101: their holders fetch a token of another key and come back.'],
};

function whose(revoked) {
  const of = Object.keys(WHAT).find((name) => revoked[name] !== undefined);
  return { of, name: revoked[of] };
}

export class AccessView extends Asking {
  constructor(given) {
    super(given);
    this.outage = h('section', { class: 'card', id: 'outage', 'aria-label': 'Outage of the identity provider' });
    this.list = h('ul', { class: 'plain' });
    this.note = h('p', { class: 'note', role: 'status' });
    this.root.append(h('div', { class: 'view-head' }, h('h1', {}, 'Access')), this.outage,
      h('div', { class: 'view-head' }, h('h2', {}, 'Revoked tokens'), h('button', { type: 'button', class: 'primary', onclick: () => this.revoke() }, 'Revoke', h('kbd', {}, 'n'))), this.list, this.note);
    this.turn();
  }

  async ask() {
    const access = await this.api.access();
    const since = access.outage?.since_ts;
    // Why it was declared is in the audit: read once for each.
    if (since && this.told?.since !== since) {
      const { audit } = await this.api.audit({ action: 'auth outage', limit: 1 });
      this.told = { since, row: audit[0] };
    }
    return access;
  }

  paint({ revoked, outage }) {
    this.now = outage;
    const row = outage ? this.told?.row : undefined;
    repaint(this.outage, [
      h('h2', {}, 'Identity provider', h('span', { class: 'state-name', 'data-state': outage ? 'settling' : 'live' }, outage ? 'outage declared' : 'no outage declared')),
      outage ? h('p', {}, `Since ${when(outage.since_ts)}, until ${when(outage.until_ts)}: tokens that ran out up to 12 hours ago let their holders watch.`)
        : h('p', { class: 'note' }, 'When it cannot give out tokens, an outage lets those that ran out lately watch, for a day at most.'),
      row ? h('p', { class: 'note' }, `${row.operator}: `, h('bdi', {}, row.justification)) : null,
      h('div', { class: 'row wrap' }, h('button', { type: 'button', 'data-key': 'declare', onclick: () => this.declare() }, outage ? 'Declare anew' : 'Declare an outage'),
        outage ? h('button', { type: 'button', class: 'danger', 'data-key': 'end', onclick: () => this.end() }, 'End it') : null),
    ].filter((child) => child !== null));
    this.note.textContent = revoked.length === 0 ? 'Nothing is revoked.' : '';
    repaint(this.list, revoked.map((r) => {
      const { of, name } = whose(r);
      return h('li', { class: 'card row between', 'data-revoked': name },
        h('div', {}, h('p', { class: 'banner-body' }, `${of} `, h('bdi', {}, name)), h('p', { class: 'note' }, `since ${when(r.since_ts)}, until ${when(r.until_ts)}`)),
        of === 'key' && !this.rights.keys ? h('p', { class: 'note' }, 'An admin’s to restore.')
          : h('button', { type: 'button', 'data-key': `${of} ${name}`, 'aria-label': `Take tokens of the ${of} ${name} again`, onclick: () => this.restore(r) }, 'Restore'));
    }));
  }

  async declare() {
    const before = this.now;
    await this.acts.perform({
      title: before ? 'Declare the outage anew?' : 'Declare an outage of the identity provider?',
      effects: (v) => [
        `For ${seconds(Number(v.seconds))} from now, then it ends by itself.`,
        'A token that ran out up to 12 hours ago lets its holder watch, and speak where nobody must be judged first. Roles above publisher have ended.',
        'What is revoked stays revoked.',
      ],
      danger: true,
      fields: [{ name: 'seconds', label: 'For', type: 'select', value: 7200, options: OUTAGES }],
      confirm: 'Declare',
      steps: (v) => [{
        what: `Declared an outage for ${seconds(Number(v.seconds))}`,
        run: (justification) => this.api.outage({ seconds: Number(v.seconds), justification }),
        undo: before ? this.again(before, 'Back to its end before')
          : { what: 'End it', run: (justification) => this.api.endOutage(justification) },
      }],
      after: this.turnBound,
    });
  }

  /** Declares what is left of an outage. */
  again(outage, what) {
    return { what, run: (justification) => this.api.outage({ seconds: remaining(outage.until_ts, Date.now(), SECONDS_MIN), justification }) };
  }

  async end() {
    const before = this.now;
    await this.acts.perform({
      title: 'End the outage?',
      effects: ['Tokens that ran out are refused from now on.', 'Streams that are open on them are closed with 4101: their holders fetch a token and come back.'],
      danger: true,
      confirm: 'End it',
      steps: () => [{ what: 'Ended the outage', run: (justification) => this.api.endOutage(justification), undo: this.again(before, 'Declare it again') }],
      after: this.turnBound,
    });
  }

  async revoke() {
    const kinds = [['user', 'a user (sub)'], ['session', 'a session (sid)'], ...(this.rights.keys ? [['key', 'a key (kid)']] : [])];
    await this.acts.perform({
      title: 'Revoke tokens?',
      effects: (v) => WHAT[v.of](v.name || '…'),
      danger: true,
      fields: [
        { name: 'of', label: 'Tokens of', type: 'select', value: 'user', options: kinds },
        { name: 'name', label: 'Its id', required: true, maxlength: 256 },
        { name: 'seconds', label: 'For (longer than any token lives)', type: 'select', value: 2_592_000, options: REVOKED },
      ],
      confirm: 'Revoke',
      steps: (v) => [{
        what: `Revoked tokens of the ${v.of} ${v.name}`,
        run: (justification) => this.api.revoke({ [v.of]: v.name, seconds: Number(v.seconds), justification }),
        undo: { what: 'Restore', run: (justification) => this.api.restore({ [v.of]: v.name, justification }) },
      }],
      after: this.turnBound,
    });
  }

  async restore(revoked) {
    const { of, name } = whose(revoked);
    await this.acts.perform({
      title: `Take tokens of the ${of} ${name} again?`,
      effects: ['Those that have not run out let their holders in again, from now on.'],
      confirm: 'Restore',
      steps: () => [{
        what: `Tokens of the ${of} ${name} are taken again`,
        run: (justification) => this.api.restore({ [of]: name, justification }),
        // Of a user it then holds against everything issued up to that moment.
        undo: { what: 'Revoke again', run: (justification) => this.api.revoke({ [of]: name, seconds: remaining(revoked.until_ts, Date.now(), SECONDS_MIN), justification }) },
      }],
      after: this.turnBound,
    });
  }

  keys() { return [['n', 'revoke tokens']]; }

  key(key) {
    if (key !== 'n') return false;
    this.revoke();
    return true;
  }
}
