// Banners, gateways and the audit: what concerns the whole site.

import { count, seconds } from './console-model.js';
import { h, when } from './words.js';

const EVERY_MS = 3000;

/** Other children in a list; what has the focus keeps it by its `data-key`. */
export function repaint(list, children) {
  const key = list.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  list.replaceChildren(...children);
  if (key !== undefined) list.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}

/** A view that asks again and again and paints the answer. */
export class Asking {
  constructor(given) {
    Object.assign(this, given);
    this.turnBound = () => this.turn();
  }

  async turn() {
    clearTimeout(this.timer);
    try {
      const answer = await this.ask();
      if (this.stopped) return;
      this.faulted(null);
      this.paint(answer);
    } catch (fault) {
      if (this.stopped) return;
      this.faulted(fault);
    }
    this.timer = setTimeout(this.turnBound, EVERY_MS);
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
  }

  keys() { return []; }

  key() { return false; }
}

export class BannersView extends Asking {
  constructor(given) {
    super(given);
    this.list = h('ul', { class: 'plain' });
    this.note = h('p', { class: 'note', role: 'status' });
    this.root.append(h('div', { class: 'view-head' }, h('h1', {}, 'Banners'), h('button', { type: 'button', class: 'primary', onclick: () => this.put() }, 'Put up a banner', h('kbd', {}, 'n'))),
      this.list, this.note);
    this.turn();
  }

  ask() { return this.api.banners(); }

  paint({ banners }) {
    this.note.textContent = banners.length === 0 ? 'No banner stands.' : '';
    repaint(this.list, banners.map((b) => h('li', { class: 'card row between', 'data-banner': b.banner_id },
      h('div', {}, h('p', { class: 'banner-body' }, h('bdi', {}, b.body)),
        h('p', { class: 'note' }, `until ${when(b.until_ts)}`, b.source_room_id ? ` · from ${b.source_room_id}` : '', b.item ? ' · of a gift' : '')),
      h('button', { type: 'button', class: 'danger', 'data-key': b.banner_id, onclick: () => this.end(b) }, 'End'))));
  }

  async put() {
    await this.acts.perform({
      title: 'Put up a banner?',
      effects: ['Every open stream of the site is told, in every room.', 'At most 32 stand at a time; each viewer is given one a second.'],
      fields: [
        { name: 'body', label: 'Text, one line', required: true, maxlength: 200 },
        { name: 'seconds', label: 'For', type: 'select', value: 60, options: [[30, '30 seconds'], [60, '1 minute'], [300, '5 minutes'], [900, '15 minutes'], [3600, '1 hour'], [86_400, '1 day']] },
        { name: 'room', label: 'Leads to a room (may be empty)', maxlength: 128, placeholder: 'room-id' },
      ],
      confirm: 'Put up',
      steps: (v) => [{
        what: `Banner “${v.body}” for ${seconds(Number(v.seconds))}`,
        run: (justification) => this.api.banner({ body: v.body, seconds: Number(v.seconds), ...(v.room ? { source_room_id: v.room } : {}), justification }),
        undo: (answer) => ({ what: 'End it', run: (justification) => this.api.endBanner(answer.banner_id, justification) }),
      }],
      after: this.turnBound,
    });
  }

  async end(banner) {
    const left = Math.max(1, Math.round((Date.parse(banner.until_ts) - Date.now()) / 1000));
    await this.acts.perform({
      title: 'End this banner?',
      effects: [`“${banner.body}”`, 'Every open stream is told to take it down.'],
      danger: true,
      confirm: 'End',
      steps: () => [{
        what: `Ended the banner “${banner.body}”`,
        run: (justification) => this.api.endBanner(banner.banner_id, justification),
        // What is put up again is a banner of its own; a gift's is not an operator's to make.
        undo: banner.item ? undefined : {
          what: 'Put it up again',
          run: (justification) => this.api.banner({ body: banner.body, seconds: left, ...(banner.source_room_id ? { source_room_id: banner.source_room_id } : {}), justification }),
        },
      }],
      after: this.turnBound,
    });
  }

  keys() { return [['n', 'put up a banner']]; }

  key(key) {
    if (key !== 'n') return false;
    this.put();
    return true;
  }
}

export class GatewaysView extends Asking {
  constructor(given) {
    super(given);
    this.list = h('div', { class: 'cards' });
    this.root.append(h('div', { class: 'view-head' }, h('h1', {}, 'Gateways')), this.list);
    this.turn();
  }

  ask() { return this.api.gateways(); }

  paint({ gateways, all }) {
    const cards = gateways.map((g) => this.card(g));
    if (all) cards.unshift(this.whole(all, gateways));
    repaint(this.list, cards);
  }

  whole(all, gateways) {
    const sum = gateways.reduce((n, g) => n + (g.load?.streams ?? 0), 0);
    return h('section', { class: 'card', 'aria-label': 'All gateways' }, h('h2', {}, 'All gateways'),
      h('dl', {}, fact('Streams', sum.toLocaleString('en')), fact('Admission', admission(all.admission))), changed(all.changed), this.buttons({ id: 'all', ...all, load: { streams: sum } }));
  }

  card(g) {
    const { load } = g;
    const full = load.connections_max ? `${load.connections.toLocaleString('en')} of ${load.connections_max.toLocaleString('en')} connections` : `${load.connections.toLocaleString('en')} connections`;
    const share = load.share === null || load.share === undefined ? null : h('meter', { min: 0, max: 1, high: 0.9, value: load.share, 'aria-label': `Load of ${g.id}` });
    return h('section', { class: 'card', 'aria-label': `Gateway ${g.id}`, 'data-gateway': g.id },
      h('h2', {}, g.id, h('span', { class: 'state-name', 'data-state': g.state === 'open' ? 'live' : 'closed' }, g.state)),
      h('dl', {},
        fact('Load', full, share),
        fact('Streams', `${load.streams.toLocaleString('en')} (${load.websocket} WebSocket, ${load.sse} SSE, ${load.poll} long-poll)`),
        fact('Admission', admission(g.admission)),
        g.drain ? fact('Drain', `${seconds(g.drain.seconds)}, ${Math.ceil(g.drain.remaining_ms / 1000)} s left`) : null,
        g.shedding?.engaged ? fact('Shedding', 'engaged') : null),
      changed(g.changed), this.buttons(g));
  }

  buttons(g) {
    return h('div', { class: 'row wrap' }, h('button', { type: 'button', 'data-key': `${g.id} admission`, onclick: () => this.admit(g) }, 'Admission'),
      h('button', { type: 'button', class: 'danger', 'data-key': `${g.id} drain`, onclick: () => this.drain(g) }, 'Drain'));
  }

  /** Gives a gateway the admission it had. */
  back(g) {
    const same = JSON.stringify(g.admission) === JSON.stringify(g.admission_configured);
    const body = same || !g.admission ? {} : { rate: g.admission.rate, burst: g.admission.burst };
    return { what: `Back to ${admission(g.admission)}`, run: (justification) => this.api.gateway(g.id, 'admission', { ...body, justification }) };
  }

  async admit(g) {
    await this.acts.perform({
      title: `Admission of ${name(g)}`,
      effects: [`Now: ${admission(g.admission)}.`, 'New streams a second from now on; 0 takes nobody, who waits is told how long. Open streams stay.', ...(g.drain ? ['Ends the drain.'] : [])],
      fields: [{ name: 'rate', label: 'New streams a second (empty: as configured)', type: 'number', min: 0, max: 1_000_000, value: g.admission?.rate ?? '' }],
      confirm: 'Set',
      steps: ({ rate }) => [{
        what: rate === '' ? `Admission of ${name(g)} as configured` : `Admission of ${name(g)}: ${rate} a second`,
        run: (justification) => this.api.gateway(g.id, 'admission', { ...(rate === '' ? {} : { rate: Number(rate) }), justification }),
        undo: this.back(g),
      }],
      after: this.turnBound,
    });
  }

  async drain(g) {
    await this.acts.perform({
      title: `Drain ${name(g)}?`,
      effects: [`${count(g.load?.streams ?? 0, 'stream')} closed with 4112 in equal slices; their clients resume, elsewhere or here when it is open again.`, 'New streams are refused, and readiness is false, until the next admission.'],
      danger: true,
      fields: [{ name: 'seconds', label: 'Over so many seconds', type: 'number', min: 0, max: 3600, required: true, value: 60 }],
      confirm: 'Drain',
      steps: (v) => [{
        what: `${name(g)} is drained over ${seconds(Number(v.seconds))}`,
        run: (justification) => this.api.gateway(g.id, 'drain', { seconds: Number(v.seconds), justification }),
        undo: { ...this.back(g), what: 'Open again' },
      }],
      after: this.turnBound,
    });
  }
}

/** Actions a filter offers; what else the server names is found by typing nothing. */
const ACTIONS = ['ban', 'shadow ban', 'unban', 'site ban', 'site unban', 'retract', 'held: approve', 'held: deny', 'pin', 'unpin', 'slow mode', 'state', 'put room',
  'match providers', 'score: type', 'score: withdraw', 'provider key', 'provider key end', 'revoke', 'revoke end', 'auth outage', 'auth outage end', 'banner', 'banner end', 'admission', 'drain', 'shedding'];
const AUDIT_ROWS = 100;
/** Looks back into the log for one page, each of at most a third of a second. */
const AUDIT_LOOKS = 5;

/** Who changed what, and why. It is read when it is asked for: a page of the past does not move. */
export class AuditView {
  constructor(given) {
    Object.assign(this, given);
    this.filters = new Map();
    const field = (key, label, input) => { this.filters.set(key, input); return h('label', { class: 'filter' }, h('span', {}, label), input); };
    const text = (placeholder) => h('input', { type: 'text', placeholder, autocomplete: 'off', spellcheck: 'false' });
    const action = h('select', {}, h('option', { value: '' }, 'every action'), ACTIONS.map((a) => h('option', { value: a }, a)));
    this.body = h('ol', { class: 'audit plain' });
    this.note = h('p', { class: 'note', role: 'status' });
    this.older = h('button', { type: 'button', hidden: true, onclick: () => this.look() }, 'Older');
    const form = h('form', { class: 'filters', onsubmit: (event) => { event.preventDefault(); this.begin(); } },
      field('room', 'Room', text(this.rights.operates ? 'all' : 'room-id')), field('operator', 'Operator', text('anybody')), field('action', 'Action', action),
      field('from', 'From', h('input', { type: 'datetime-local' })), field('to', 'To', h('input', { type: 'datetime-local' })),
      h('button', { type: 'submit', class: 'primary' }, 'Show'));
    this.root.append(h('div', { class: 'view-head' }, h('h1', {}, 'Audit')), form, this.body, this.note, this.older);
    if (this.rights.operates) this.begin();
    else this.note.textContent = 'Name one of your rooms.';
  }

  begin() {
    this.query = { limit: AUDIT_ROWS };
    for (const [key, input] of this.filters) {
      if (input.value === '') continue;
      this.query[key] = key === 'from' || key === 'to' ? new Date(input.value).toISOString() : input.value.trim();
    }
    this.n = 0;
    this.body.replaceChildren();
    this.look();
  }

  async look() {
    const asked = {};
    this.asked = asked;
    this.older.hidden = true;
    this.note.textContent = 'Reading…';
    try {
      let found = 0;
      let more = true;
      for (let i = 0; more && found < AUDIT_ROWS && i < AUDIT_LOOKS; i += 1) {
        const answer = await this.api.audit(this.query);
        if (this.asked !== asked || this.stopped) return;
        found += answer.audit.length;
        this.body.append(...answer.audit.map((row) => this.row(row)));
        ({ more } = answer);
        this.query = { ...this.query, before: answer.next };
      }
      this.n += found;
      this.older.hidden = !more;
      this.note.textContent = `${this.n === 0 ? 'Nothing' : count(this.n, 'change')}${more ? ' so far: there is older' : ''}.`;
      this.faulted(null);
    } catch (fault) {
      if (this.asked !== asked || this.stopped) return;
      this.note.textContent = '';
      this.faulted(fault);
    }
  }

  row(row) {
    const where = row.room_id ? h('a', { href: `#/room/${encodeURIComponent(row.room_id)}` }, row.room_id) : h('span', {}, row.target ?? '');
    const what = [...(row.changes ?? []).map(change), ...(row.given ? [given(row.given)] : [])].filter((text) => text !== '').join(' · ');
    return h('li', { class: 'card' }, h('div', { class: 'row between' }, h('span', {}, h('strong', {}, row.action), ' ', where), h('time', { class: 'note', datetime: row.ts }, when(row.ts))),
      what ? h('p', { class: 'what' }, h('bdi', {}, what)) : null,
      h('p', { class: 'note' }, row.operator ?? '', ': ', h('bdi', {}, row.justification)));
  }

  stop() { this.stopped = true; }

  keys() { return []; }

  key() { return false; }
}

/** A record that an operator's change wrote, in words. */
function change(record) {
  switch (record.type) {
    case 'ban': return `${record.user_id} ${record.shadow ? 'shadowed ' : ''}${record.until_ts ? `until ${when(record.until_ts)}` : 'for good'}${record.reason ? ` (${record.reason})` : ''}`;
    case 'unban': return record.user_id;
    case 'held_end': return `${record.held_id} ${record.end}`;
    case 'retract': return `${record.all ? 'every comment' : record.user_id ? `all of ${record.user_id}${record.since_ts ? ` since ${when(record.since_ts)}` : ''}` : `event ${record.target_event_id}`}${record.reason ? ` (${record.reason})` : ''}`;
    case 'config': return given(Object.fromEntries(Object.entries(record).filter(([key]) => !OF_THE_LOG.has(key))));
    default: return '';
  }
}

const OF_THE_LOG = new Set(['type', 'room_id', 'event_id', 'pseq', 'ts', 'epoch', 'seq', 'by']);

function given(members) {
  return Object.entries(members).filter(([, value]) => value !== null).map(([key, value]) => `${key}: ${typeof value === 'object' ? JSON.stringify(value) : value}`).join(', ');
}

function name(g) { return g.id === 'all' ? 'all gateways' : g.id; }

export function fact(term, ...value) {
  return h('div', { class: 'fact' }, h('dt', {}, term), h('dd', {}, value));
}

function admission(limit) {
  if (!limit) return 'no limit';
  if (limit.rate === 0) return 'closed: nobody is taken';
  return `${limit.rate.toLocaleString('en')} a second, burst ${limit.burst.toLocaleString('en')}${limit.shared_by ? `, shared by ${limit.shared_by}` : ''}`;
}

function changed(change) {
  return change ? h('p', { class: 'note' }, `${change.by}, ${when(change.ts)}: `, h('bdi', {}, change.justification)) : null;
}
