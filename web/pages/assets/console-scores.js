// The score desk of a room: from whom each match is shown, who is silent or disagrees, every score that was said, and what an
// operator types. What viewers are shown is changed in the server's two steps: it says what they would be told, and only that is done.

import { fact, repaint } from './console-desk.js';
import { count } from './console-model.js';
import { h, scoreLine, when } from './words.js';

/** What stands; what is withdrawn is taken back by a button of its own. */
const STATES = ['confirmed', 'provisional', 'under_review'];
const LEDGER_ROWS = 30;
const time = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });

export class ScoreDesk {
  /** `given`: {api, acts, id: the room, audience() -> who is told, in words, changed() after something was done}. */
  constructor(given) {
    Object.assign(this, given);
    this.matches = [];
    this.match = null;
    /** What the server says of each match, the newest answer. */
    this.told = new Map();
    this.turns = 0;
    this.rows = [];
    this.picker = h('select', { 'aria-label': 'Match', hidden: true, onchange: (e) => { this.choose(e.target.value); } });
    this.alarms = h('div', { class: 'alarms', role: 'alert' });
    this.body = h('div', {});
    this.form = this.makeForm();
    this.shown = h('ul', { class: 'queue shown' });
    this.ledger = h('ol', { class: 'queue said-of', tabindex: 0, 'aria-label': 'All that was said, newest first' });
    this.older = h('button', { type: 'button', hidden: true, onclick: () => this.look() }, 'Older');
    this.note = h('p', { class: 'note', role: 'status' });
    this.book = h('details', { class: 'book', ontoggle: () => { if (this.book.open) this.read(); } }, h('summary', {}, 'Score ledger'), h('h3', {}, 'Shown'), this.shown, h('h3', {}, 'Said, newest first'), this.ledger, this.older, this.note);
    this.root = h('section', { class: 'card', id: 'scores', 'aria-label': 'Score desk', hidden: true },
      h('div', { class: 'row between' }, h('h2', {}, 'Score desk'), this.picker), this.alarms, this.body, this.form.root, this.book);
  }

  get there() { return this.api.has('/admin/matches/{match}/providers', 'put'); }

  /** `matches`: those that the room shows. One more than the chosen is asked about each time, so that none alarms unseen. */
  async turn(matches) {
    if (!this.there) return;
    this.matches = matches;
    this.root.hidden = matches.length === 0;
    if (matches.length === 0) return;
    if (!matches.includes(this.match)) this.choose(matches[0], false);
    for (const match of this.told.keys()) if (!matches.includes(match)) this.told.delete(match);
    this.turns += 1;
    const others = matches.filter((m) => m !== this.match);
    const asked = others.length === 0 ? [this.match] : [this.match, others[this.turns % others.length]];
    await Promise.all(asked.map(async (match) => {
      const told = await this.api.match(match);
      const before = this.told.get(match)?.version;
      this.told.set(match, told);
      if (match === this.match && this.book.open && told.version !== before) await this.read();
    }));
    this.paint();
  }

  choose(match, ask = true) {
    this.match = match;
    [this.next, this.rows] = [undefined, []];
    this.form.clear();
    this.paint();
    if (this.book.open) this.read();
    if (ask) this.changed();
  }

  // ---- painting

  paint() {
    this.picker.hidden = this.matches.length < 2;
    if (document.activeElement !== this.picker) {
      this.picker.replaceChildren(...this.matches.map((m) => h('option', { value: m }, m)));
      this.picker.value = this.match;
    }
    const alarms = this.matches.flatMap((m) => alarmsOf(m, this.told.get(m), this.matches.length > 1));
    const said = JSON.stringify(alarms);
    // What is said anew is read out anew: the same words are left alone.
    if (said !== this.alarmed) {
      this.alarmed = said;
      this.alarms.replaceChildren(...alarms.map((text) => h('p', { class: 'alarm' }, h('bdi', {}, text))));
    }
    const told = this.told.get(this.match);
    if (!told) { repaint(this.body, []); return; }
    const role = (id) => (id === told.primary ? 'primary' : id === told.stand_by ? 'stands by' : told.primary ? 'not shown' : 'shown');
    const verb = told.primary ? 'Switch over' : 'Show from it';
    const line = (p) => h('li', { 'data-provider': p.provider },
      h('p', { class: 'row between' }, h('span', {}, h('bdi', { class: 'queue-who' }, p.provider), ' ', h('span', { class: 'badge' }, role(p.provider))), h('strong', { class: 'figures' }, figures(p.score))),
      h('p', { class: 'note' }, `${heard(p.heard_ts)} · ${count(p.events, 'event')}`),
      p.provider === told.primary || p.provider === 'operator' ? null
        : h('div', { class: 'row' }, h('button', { type: 'button', 'data-key': `show ${p.provider}`, 'aria-label': `${verb}: ${this.match}, ${p.provider}`, onclick: () => this.switchTo(p.provider) }, verb)));
    repaint(this.body, [
      h('dl', {}, fact('Match', h('bdi', {}, told.match_id)), fact('Shown', figures(told.current?.score), told.current?.state && told.current.state !== 'confirmed' ? ` ${told.current.state.replaceAll('_', ' ')}` : null),
        fact('From', told.primary ?? 'whoever says something')),
      told.providers.length === 0 ? h('p', { class: 'note' }, 'No provider has said anything of it.') : h('ul', { class: 'queue' }, told.providers.map(line)),
      told.stand_by && !told.providers.some((p) => p.provider === told.stand_by) ? h('p', { class: 'note' }, `${told.stand_by} stands by and has said nothing.`) : null,
    ].filter((part) => part !== null));
  }

  // ---- from whom it is shown

  /** The other provider becomes the primary, and the one that was stands by. */
  async switchTo(provider = this.standBy()) {
    const told = this.told.get(this.match);
    if (!told || !provider) return;
    const { match } = this;
    const others = [...new Set([told.primary, ...told.providers.map((p) => p.provider)])].filter((p) => p && p !== provider && p !== 'operator');
    const wanted = { primary: provider, ...(others.length > 0 ? { stand_by: others[0] } : {}) };
    const before = told.primary ? { primary: told.primary, ...(told.stand_by ? { stand_by: told.stand_by } : {}) } : null;
    await this.propose({
      what: `${match} is shown from ${provider}`,
      title: `Show ${match} from ${provider}?`,
      effects: [before ? `From ${before.primary} to ${provider}; ${wanted.stand_by ?? 'nobody'} stands by.` : `From whoever says something to ${provider}; ${wanted.stand_by ?? 'nobody'} stands by.`],
      ask: (body) => this.api.setProviders(match, { ...wanted, ...body }),
      // That nobody is named cannot be said again; a primary can.
      undo: before ? { what: `Back to ${before.primary}`, ask: (body) => this.api.setProviders(match, { ...before, ...body }) } : null,
    });
  }

  standBy() {
    const told = this.told.get(this.match);
    return told?.stand_by ?? told?.providers.find((p) => p.provider !== told.primary && p.provider !== 'operator')?.provider;
  }

  // ---- what is typed

  makeForm() {
    const option = (value) => h('option', { value }, value.replaceAll('_', ' '));
    const [home, away] = ['home', 'away'].map((side) => h('input', { type: 'number', min: 0, max: 10_000, required: true, 'aria-label': `Score, ${side}`, inputmode: 'numeric' }));
    const kind = h('select', { 'aria-label': 'Kind' }, this.api.kinds().map(option));
    const state = h('select', { 'aria-label': 'State' }, STATES.map(option));
    const minute = h('input', { type: 'text', 'aria-label': 'Minute (may be empty)', maxlength: 8, placeholder: 'minute', autocomplete: 'off' });
    const of = h('p', { class: 'note' });
    const drop = h('button', { type: 'button', class: 'quiet', hidden: true, onclick: () => form.clear() }, 'A new event instead');
    const form = {
      key: null,
      clear() { this.key = null; drop.hidden = true; of.textContent = 'A new event of the operators’ own.'; [home.value, away.value, minute.value] = ['', '', '']; kind.value = 'goal'; state.value = 'confirmed'; },
      of(row) {
        this.key = row.key;
        drop.hidden = false;
        of.textContent = `A correction of ${row.key}, revision ${row.revision} of ${row.provider}.`;
        [kind.value, state.value, minute.value] = [row.kind, STATES.includes(row.state) ? row.state : 'confirmed', row.minute ?? ''];
        [home.value, away.value] = [row.score.home, row.score.away];
        home.focus();
        home.select();
      },
      focus() { home.focus(); },
      root: null,
    };
    form.root = h('form', { class: 'typed', 'aria-label': 'Type a score', onsubmit: (event) => {
      event.preventDefault();
      this.type(form.key, { kind: kind.value, state: state.value, score: { home: Number(home.value), away: Number(away.value) }, ...(minute.value.trim() === '' ? {} : { minute: minute.value.trim() }) });
    } }, h('h3', {}, 'Type a score'), of,
    h('div', { class: 'row wrap' }, kind, h('span', { class: 'row goals' }, home, h('span', {}, '–'), away), minute, state),
    h('div', { class: 'row wrap' }, h('button', { type: 'submit', class: 'primary' }, 'Propose'), drop));
    form.clear();
    return form;
  }

  /** `key`: what is corrected; `null`: an event of the operators' own. */
  async type(key, said) {
    const { match } = this;
    const before = key === null ? null : this.rows.find((row) => row.key === key);
    const did = await this.propose({
      what: key === null ? `${match}: ${scoreLine(said)} is told` : `${match}: ${key} is corrected to ${scoreLine(said)}`,
      title: key === null ? `Tell the viewers of ${match} a score?` : `Correct ${key} of ${match}?`,
      effects: [key === null ? 'An event of the operators’ own: it stands until you take it back, whoever the match is shown from.' : 'It stands until its provider says something newer of the same event.'],
      ask: (body) => this.api.typeScore(match, { ...(key === null ? {} : { key }), ...said, ...body }),
      undo: (answer) => (before
        ? { what: `Back to ${scoreLine(before)}`, ask: (body) => this.api.typeScore(match, { key, kind: before.kind, state: before.state, score: before.score, ...(before.minute ? { minute: before.minute } : {}), ...body }) }
        : { what: 'Take it back', ask: (body) => this.api.typeScore(match, { key: answer.key, state: 'withdrawn', ...body }) }),
    });
    if (did) this.form.clear();
  }

  async withdraw(row) {
    const { match } = this;
    await this.propose({
      what: `${match}: ${row.key} is taken back`,
      title: `Take back ${row.key} of ${match}?`,
      effects: [`Shown now: ${scoreLine(row)}.`],
      danger: true,
      ask: (body) => this.api.typeScore(match, { key: row.key, state: 'withdrawn', ...body }),
      undo: { what: 'Show it again', ask: (body) => this.api.typeScore(match, { key: row.key, kind: row.kind, state: row.state, score: row.score, ...(row.minute ? { minute: row.minute } : {}), ...body }) },
    });
  }

  /** The first step: what viewers would be told. The second, where it is confirmed, does that and nothing else. */
  async propose({ what, title, effects, danger, ask, undo }) {
    let preview;
    try {
      preview = await ask({});
    } catch (fault) {
      this.acts.tell(`Not proposed: ${fault.message}`, 'bad');
      return false;
    }
    const told = preview.changes.slice(0, 8).map((c) => `Told: ${c.key}, ${scoreLine(c)}${c.state === 'withdrawn' ? '' : ` (revision ${c.revision})`}${c.historical ? ', as history' : ''}`);
    const more = preview.changes.length - told.length;
    const falls = preview.score_now && preview.score_then && (preview.score_then.home < preview.score_now.home || preview.score_then.away < preview.score_now.away);
    const both = (step) => async (justification) => {
      const { confirm } = await step({});
      return step({ confirm, justification });
    };
    const back = (answer) => {
      const step = typeof undo === 'function' ? undo(answer) : undo;
      return step ? { what: step.what, run: both(step.ask) } : {};
    };
    return this.acts.perform({
      title,
      effects: [
        ...effects,
        preview.changes.length === 0 ? 'Viewers are told nothing new.' : `${this.audience()} are told ${count(preview.changes.length, 'event')}.`,
        ...told, ...(more > 0 ? [`and ${more} more`] : []),
        `The score is ${figures(preview.score_now)} now, and ${figures(preview.score_then)} then.`,
        'When anything is said of the match meanwhile, nothing is done: propose it again.',
      ],
      warning: falls ? 'The score that viewers see goes down.' : undefined,
      danger,
      confirm: 'Confirm',
      steps: () => [{ what, run: (justification) => ask({ confirm: preview.confirm, justification }), undo: back }],
      after: () => { this.changed(); if (this.book.open) this.read(); },
    });
  }

  // ---- the ledger

  /** From the newest. */
  async read() {
    this.next = undefined;
    await this.look();
  }

  async look() {
    const { match } = this;
    const older = this.next;
    this.note.textContent = 'Reading…';
    try {
      const answer = await this.api.scores(match, { limit: LEDGER_ROWS, ...(older === undefined ? {} : { before: older }) });
      if (this.match !== match) return;
      this.rows = answer.shown;
      this.next = answer.next ?? undefined;
      this.older.hidden = !answer.more;
      repaint(this.shown, [...answer.shown].reverse().map((row) => this.row(row)));
      const said = answer.revisions.map((r) => revision(r));
      if (older === undefined) repaint(this.ledger, said); else this.ledger.append(...said);
      this.note.textContent = answer.more ? '' : 'That is all that was said.';
    } catch (fault) {
      if (this.match === match) this.note.textContent = `Not read: ${fault.message}`;
    }
  }

  row(row) {
    const gone = row.state === 'withdrawn';
    return h('li', { 'data-shown': row.key, class: gone ? 'gone' : null },
      h('p', {}, h('bdi', { class: 'queue-who' }, row.key), ' ', h('bdi', {}, scoreLine(row))),
      h('p', { class: 'note' }, h('bdi', {}, `${row.provider}, revision ${row.revision}${row.historical ? ', history' : ''}`)),
      h('div', { class: 'row' },
        h('button', { type: 'button', 'data-key': `correct ${row.key}`, 'aria-label': `Correct ${row.key}`, onclick: () => this.form.of(row) }, 'Correct'),
        gone ? null : h('button', { type: 'button', class: 'danger', 'data-key': `withdraw ${row.key}`, 'aria-label': `Take back ${row.key}`, onclick: () => this.withdraw(row) }, 'Take back')));
  }

  keys() { return this.there && this.matches.length > 0 ? [['o', 'switch over to who stands by'], ['i', 'type a score']] : []; }

  key(key) {
    if (this.root.hidden) return false;
    if (key === 'o') { this.switchTo(); return true; }
    if (key === 'i') { this.form.focus(); return true; }
    return false;
  }
}

/** What of a match needs somebody's eyes now, in words. */
function alarmsOf(match, told, named) {
  if (!told) return [];
  const of = named ? `${match}: ` : '';
  const at = (ts) => time.format(new Date(ts));
  const alarms = [];
  if (told.silent_since_ts) alarms.push(`${of}nothing comes from ${told.primary} since ${at(told.silent_since_ts)}. Viewers are told that the feed is stale.`);
  if (told.differs_since_ts) {
    const score = (id) => figures(told.providers.find((p) => p.provider === id)?.score);
    alarms.push(`${of}${told.primary} says ${score(told.primary)}, ${told.stand_by} says ${score(told.stand_by)}, since ${at(told.differs_since_ts)}.`);
  }
  return alarms;
}

/** How long ago a provider gave a sign of life. */
function heard(ts) {
  if (!ts) return 'not heard since the server started';
  const seconds = Math.max(0, Math.round((Date.now() - Date.parse(ts)) / 1000));
  return seconds < 120 ? `heard ${seconds} s ago` : `heard ${when(ts)}`;
}

function figures(score) { return score ? `${score.home}–${score.away}` : 'no score'; }

/** One line of what was said. */
function revision(r) {
  if (r.type === 'feed') return h('li', {}, h('p', {}, h('bdi', {}, `from here on shown from ${r.primary}${r.stand_by ? `, ${r.stand_by} stands by` : ''}`)), h('p', { class: 'note' }, when(r.ts)));
  const key = r.provider_event ?? r.key;
  const number = r.provider_revision ?? r.revision;
  return h('li', { class: r.shown ? null : 'gone' },
    h('p', {}, h('bdi', { class: 'queue-who' }, r.provider), ' ', h('bdi', {}, `${key} ${number}: ${scoreLine({ ...r, revision: 1 })}`)),
    h('p', { class: 'note' }, `${when(r.ts)} · ${r.shown ? 'shown' : 'not shown'}`));
}
