// Who may not speak: in one room beside its feed, and in all of them as a view of its own.

import { askBan, askLift, untilText } from './console-ban.js';
import { Asking, repaint } from './console-desk.js';
import { count, holds } from './console-model.js';
import { Queue } from './console-queue.js';
import { h, span, when } from './words.js';

/** Bans of a room that are shown; a user's card finds any. */
const SHOWN = 50;
/** Bans of the site asked for at a time. */
const PAGE = 100;

function kind(ban) {
  return ban.shadow ? span('badge', 'shadow') : null;
}

/** Until when, and why. */
function terms(ban) {
  return h('p', { class: 'note' }, untilText(ban), ban.reason ? [': ', h('bdi', {}, ban.reason)] : null);
}

function lifter(ban, run) {
  return h('button', { type: 'button', 'data-key': ban.user_id, 'aria-label': `Lift the ban of ${ban.user_id}`, onclick: run }, 'Lift');
}

export class RoomBans extends Queue {
  /** `given`: {api, acts, id: the room, changed() when one was lifted or put up again}. */
  constructor(given) {
    super(given, { name: 'bans', label: 'Bans of this room', list: 'ul' });
    this.bans = [];
  }

  async turn() {
    this.bans = (await this.api.bans(this.id)).bans;
    this.paint();
  }

  /** The ban of a user that holds here. */
  of(user) { return this.bans.find((ban) => ban.user_id === user && holds(ban, Date.now())); }

  paint() {
    const n = this.bans.length;
    this.show({
      n, title: `Bans here: ${n.toLocaleString('en')}`, note: n > SHOWN ? `The first ${SHOWN} by name; a user’s card has the others.` : '', seen: this.bans,
      lines: () => this.bans.slice(0, SHOWN).map((ban) => h('li', { class: 'row between', 'data-ban': ban.user_id },
        h('div', {}, h('bdi', { class: 'queue-who' }, ban.user_id), kind(ban), terms(ban)), lifter(ban, () => this.lift(ban)))),
    });
  }

  lift(ban, user) { askLift({ acts: this.acts, api: this.api, id: this.id, ban, user, after: this.changed }); }
}

export class BansView extends Asking {
  constructor(given) {
    super(given);
    this.pages = 1;
    this.list = h('ul', { class: 'plain' });
    this.note = h('p', { class: 'note', role: 'status' });
    this.more = h('button', { type: 'button', hidden: true, onclick: () => { this.pages += 1; this.turn(); } }, 'More');
    this.look = h('input', { type: 'search', id: 'look', placeholder: 'A user’s id', 'aria-label': 'Find a user’s ban', autocomplete: 'off', spellcheck: 'false', oninput: () => { clearTimeout(this.timer); this.timer = setTimeout(this.turnBound, 250); } });
    this.root.append(h('div', { class: 'view-head' }, h('h1', {}, 'Bans of the site'), this.look, h('button', { type: 'button', class: 'primary', onclick: () => this.ban() }, 'Ban a user', h('kbd', {}, 'n'))),
      this.list, this.note, this.more);
    this.turn();
  }

  async ask() {
    const user = this.look.value.trim();
    if (user !== '') return this.api.siteBans({ user });
    let all = [];
    let answer;
    for (let page = 0; page < this.pages; page += 1) {
      answer = await this.api.siteBans({ limit: PAGE, ...(all.length > 0 ? { after: all.at(-1).user_id } : {}) });
      all = [...all, ...answer.bans];
      if (!answer.more) break;
    }
    return { ...answer, bans: all };
  }

  paint({ bans, found, more }) {
    const asked = this.look.value.trim();
    this.more.hidden = !more;
    this.note.textContent = bans.length === 0 ? (asked ? `${asked} is not banned from the site. A room may ban it: see the room.` : 'Nobody is banned from the whole site.')
      : more ? `${bans.length} of ${count(found, 'ban')}.` : count(found, 'ban');
    repaint(this.list, bans.map((ban) => h('li', { class: 'card row between', 'data-ban': ban.user_id },
      h('div', {}, h('p', { class: 'banner-body' }, h('bdi', {}, ban.user_id), ' ', kind(ban)),
        terms(ban),
        ban.by ? h('p', { class: 'note' }, `${ban.by}, ${when(ban.since_ts)}: `, h('bdi', {}, ban.justification)) : null),
      lifter(ban, () => this.lift(ban)))));
  }

  lift(ban) { askLift({ acts: this.acts, api: this.api, id: null, ban, after: this.turnBound }); }

  /** Of a user whose id is typed: what it said is not at hand here. */
  ban() {
    askBan({ acts: this.acts, api: this.api, rights: this.rights, id: null, users: null, typed: this.look.value.trim(), after: this.turnBound });
  }

  keys() { return [['n', 'ban a user from the whole site'], ['/', 'find a user’s ban']]; }

  key(key) {
    if (key === 'n') this.ban();
    else if (key === '/') this.look.focus();
    else return false;
    return true;
  }
}
