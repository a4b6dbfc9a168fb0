// One room as its moderator sees it: the viewers' own stream, one comment at a time under the keys, and what is done about it.

import { askBan, askLift, list, named, untilText } from './console-ban.js';
import { RoomBans } from './console-bans.js';
import { fact, repaint } from './console-desk.js';
import { askErase } from './console-erase.js';
import { Held } from './console-held.js';
import { Reports } from './console-reports.js';
import { chart } from './console-rooms.js';
import { ScoreDesk } from './console-scores.js';
import { authors, count, left, measure, moved, pinnedWith, regions, seconds, targets } from './console-model.js';
import { Room, statusText } from './grandstand-client.js';
import { configLine, h, hue, money, sampledText, scoreLine, shownAs, span, when } from './words.js';

const EVERY_MS = 2000;
const HISTORY_SHOWN = 50;
/** Looks back into the log that a user card takes, each of at most a third of a second. */
const HISTORY_PAGES = 5;
/** Bans are asked for at every fifth turn, and at once after something was done: a room's may be many. */
const BANS_TURNS = 5;
const PINS = [['0', 'until it is taken down'], ['300', '5 minutes'], ['900', '15 minutes'], ['1800', '30 minutes'], ['3600', '1 hour'], ['14400', '4 hours'], ['86400', '1 day']];
const STATES = ['scheduled', 'live', 'settling', 'closed'];
const time = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit' });

export class RoomView {
  constructor({ api, root, acts, rights, faulted, histories, id }) {
    Object.assign(this, { api, acts, rights, faulted, histories, id });
    // A desk does not wait for another tab.
    this.stream = new Room({ room: id, token: () => api.token, share: false });
    this.room = this.stream.store;
    this.dirty = new Set();
    this.settings = null;
    this.current = null;
    this.selected = new Set();
    this.user = null;
    /** A comment under the keys that was chosen elsewhere than in the feed. */
    this.aimed = null;
    this.nodes = new Map();
    this.unread = 0;

    this.title = h('h1', {}, id);
    this.stateTag = h('span', { class: 'state', role: 'status', 'data-state': 'connecting', id: 'state' }, 'Connecting…');
    this.sampledTag = h('span', { class: 'sampled', role: 'note', hidden: true }, 'sampled view');
    this.feed = h('ol', { class: 'feed desk', id: 'feed', tabindex: 0, 'aria-label': 'Comments' });
    this.pill = h('button', { type: 'button', class: 'pill', hidden: true, onclick: () => this.toLive() });
    this.bar = h('div', { class: 'actions', role: 'toolbar', 'aria-label': 'Moderation' });
    this.facts = h('section', { class: 'card facts', 'aria-label': 'The room' });
    this.card = h('section', { class: 'card user', id: 'user', 'aria-label': 'The user', hidden: true });
    this.scores = h('div', { class: 'scores', hidden: true });
    const changed = () => this.done();
    this.held = new Held({ api, acts, id, audience: () => this.audience(), decided: changed });
    this.bans = new RoomBans({ api, acts, id, changed });
    this.reports = new Reports({
      api, id,
      known: (event) => this.room.entries.find((e) => e.id === event && e.type === 'comment' && !e.retracted),
      gone: (event) => this.room.isRetracted(event),
      aim: (comment) => this.aim(comment),
      retract: (comments) => this.retract(comments),
      ban: (users) => this.ban(0, users),
    });
    this.desk = new ScoreDesk({ api, acts, id, audience: () => this.audience(), changed: () => this.turnSoon() });
    const side = h('aside', { class: 'side' }, this.held.root, this.card, this.desk.root, this.reports.root, this.facts, this.bans.root);
    root.append(h('div', { class: 'view-head' }, h('a', { href: '#/rooms', class: 'home', 'aria-label': 'All rooms' }, '←'), this.title, this.sampledTag, this.stateTag),
      h('div', { class: 'room-view' }, h('div', { class: 'stage' }, this.scores, h('div', { class: 'feed-wrap' }, this.feed, this.pill), this.bar), side));

    this.feed.addEventListener('click', (event) => {
      const li = event.target.closest('li[data-id]');
      if (!li) return;
      const id = Number(li.dataset.id);
      if (event.target.closest('.pick')) this.toggle(id);
      else { this.unaim(); this.current = id; this.paintMarks(); if (event.target.closest('.who')) this.openUser(); }
    });
    this.feed.addEventListener('scroll', () => { if (this.atEnd()) { this.unread = 0; this.pill.hidden = true; } }, { passive: true });
    this.stream.on('change', (parts) => { for (const part of parts) this.dirty.add(part); this.paintSoon(); });
    this.stream.on('event', (e) => { if (e.type === 'config') this.turnSoon(); });
    this.stream.on('status', (status) => this.toldState(status));
    this.paintBar();
    this.stream.start();
    this.turn();
  }

  toldState(status) {
    this.stateTag.dataset.state = status.state;
    this.stateTag.textContent = status.state === 'stopped' && status.reason ? `Stopped: ${status.reason}` : statusText(status);
  }

  turnSoon() {
    this.turns = 0;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.turn(), 100);
  }

  /** The room's settings and counters, again and again. */
  async turn() {
    clearTimeout(this.timer);
    try {
      this.settings = await this.api.room(this.id);
      if (this.stopped) return;
      this.histories.set(this.id, measure(this.histories.get(this.id) ?? [], this.settings.counters, performance.now()));
      this.paintFacts();
      const due = (this.turns ?? 0) % BANS_TURNS === 0;
      this.turns = (this.turns ?? 0) + 1;
      const desk = this.rights.operates ? this.desk.turn(this.settings.matches ?? []) : null;
      await Promise.all([this.held.turn(), this.reports.turn(), due ? this.bans.turn() : null, desk]);
      if (this.stopped) return;
      this.faulted(null);
    } catch (fault) {
      if (this.stopped) return;
      this.faulted(fault);
    }
    this.timer = setTimeout(() => this.turn(), EVERY_MS);
  }

  // ---- painting

  paintSoon() {
    if (this.painting) return;
    this.painting = true;
    const paint = () => { this.painting = false; if (!this.stopped) this.paint(); };
    if (document.hidden) setTimeout(paint, 500);
    else requestAnimationFrame(paint);
  }

  comments() { return this.room.entries.filter((e) => e.type === 'comment' && e.id !== undefined && !e.retracted); }

  atEnd() { return this.feed.scrollHeight - this.feed.scrollTop - this.feed.clientHeight < 48; }

  paint() {
    const changed = this.dirty;
    this.dirty = new Set();
    this.title.textContent = this.room.title;
    document.title = `${this.room.title} · Console`;
    const sampled = sampledText(this.room);
    this.sampledTag.hidden = sampled === null;
    this.sampledTag.title = sampled ?? '';
    if (changed.has('scores')) this.paintScores();
    if (!changed.has('entries')) return;
    // Who looks at one comment is not moved away from it.
    const follow = this.current === null && this.atEnd();
    const wanted = new Set(this.room.entries);
    let gone = 0;
    for (const [entry, li] of this.nodes) {
      if (wanted.has(entry)) continue;
      gone += li.offsetHeight;
      li.remove();
      this.nodes.delete(entry);
    }
    let added = 0;
    let at = this.feed.firstElementChild;
    for (const entry of this.room.entries) {
      let li = this.nodes.get(entry);
      const stamp = `${entry.version ?? 0}`;
      if (!li || li.dataset.stamp !== stamp) {
        const fresh = this.draw(entry);
        fresh.dataset.stamp = stamp;
        if (li) { if (at === li) at = li.nextElementSibling; li.replaceWith(fresh); this.nodes.set(entry, fresh); continue; }
        li = fresh;
        this.nodes.set(entry, li);
        if (entry.type === 'comment') added += 1;
      }
      if (li === at) at = at.nextElementSibling;
      else this.feed.insertBefore(li, at);
    }
    if (follow) {
      this.feed.scrollTop = this.feed.scrollHeight;
    } else {
      this.feed.scrollTop -= gone;
      this.unread += added;
      this.pill.textContent = `${this.unread} new ↓`;
      this.pill.hidden = this.unread === 0;
    }
    const known = new Set(this.comments().map((c) => c.id));
    for (const id of this.selected) if (!known.has(id)) this.selected.delete(id);
    if (this.current !== null && !this.room.comment(this.current)) this.current = null;
    this.paintMarks();
  }

  draw(e) {
    if (e.type === 'score') return h('li', { class: 'event' }, `${e.score.match_id} · ${scoreLine(e.score)}`);
    if (e.type === 'gift') {
      return h('li', { class: 'event gift' }, span('giver', shownAs(e.gift.user, 'Someone')), ` sent ${e.gift.item} `,
        span('times', `×${e.gift.count ?? 1}`), e.gift.amount_micros > 0 ? span('amount', money(e.gift.amount_micros, e.gift.currency)) : null);
    }
    if (e.type === 'config') return h('li', { class: 'event' }, configLine(e.config));
    if (e.type === 'skipped') return h('li', { class: 'event' }, `${e.count} comments passed over: this connection was too slow for them.`);
    if (e.retracted) return h('li', { class: 'retracted', 'data-id': e.id }, `Removed: ${shownAs(e.user, '')}${e.reason ? ` (${e.reason})` : ''}`);
    const who = h('span', { class: 'who' }, h('bdi', {}, shownAs(e.user)));
    who.style.setProperty('color', `hsl(${hue(e.user?.id ?? '')} 60% var(--who-light, 40%))`);
    return h('li', { 'data-id': e.id }, h('button', { type: 'button', class: 'pick', tabindex: -1, 'aria-pressed': 'false', 'aria-label': 'Select' }),
      span('time', e.ts ? time.format(new Date(e.ts)) : ''), (e.user?.badges ?? []).map((b) => span('badge', b)), who,
      h('bdi', { class: 'body' }, e.body), e.repeats > 0 ? span('repeats', `×${e.repeats + 1}`) : null);
  }

  paintScores() {
    const all = this.room.scores;
    this.scores.hidden = all.length === 0;
    this.scores.replaceChildren(...all.map((s) => h('div', { class: 'score' }, span('figures', `${s.score.home} – ${s.score.away}`), span('match', s.match_id))));
  }

  paintMarks() {
    const pinned = new Set(this.settings?.pinned ?? []);
    for (const [entry, li] of this.nodes) {
      if (entry.id === undefined) continue;
      li.classList.toggle('current', entry.id === this.current);
      li.classList.toggle('selected', this.selected.has(entry.id));
      li.classList.toggle('pinned', pinned.has(entry.id));
      li.querySelector('.pick')?.setAttribute('aria-pressed', String(this.selected.has(entry.id)));
    }
    this.paintBar();
  }

  paintBar() {
    const n = this.targets().length;
    const aim = this.selected.size > 0 ? `${count(this.selected.size, 'comment')} selected` : this.aimed ? 'the reported comment' : n > 0 ? '1 comment' : 'j and k choose a comment';
    const button = (key, text, run, needs = true) => h('button', { type: 'button', disabled: needs && n === 0, onclick: run }, text, h('kbd', {}, key));
    this.bar.replaceChildren(
      h('span', { class: 'aim' }, aim),
      button('r', 'Retract', () => this.retract()), button('b', 'Ban', () => this.ban(0)), button('t', 'Timeout', () => this.ban(600)),
      button('p', 'Pin', () => this.pin()), button('u', 'User', () => this.openUser()), button('x', 'Select', () => this.toggle(this.current)),
      button('s', 'Slow mode', () => this.slowMode(), false));
  }

  paintFacts() {
    const s = this.settings;
    const history = this.histories.get(this.id) ?? [];
    const now = history.at(-1);
    if (this.facts.contains(document.activeElement) && document.activeElement.tagName === 'SELECT') return;
    const many = (n) => (n >= 10 ? Math.round(n).toLocaleString('en') : n.toFixed(1));
    const until = s.until_ts ? `, until ${time.format(new Date(s.until_ts))}` : '';
    const state = h('select', { 'aria-label': 'State of the room', onchange: (e) => this.state(e.target.value) }, STATES.map((name) => h('option', { value: name }, name)));
    state.value = s.state;
    const policies = this.rights.operates ? this.api.choices('moderation_policy') : [];
    let policy = s.moderation_policy;
    if (policies.length > 1) {
      policy = h('select', { 'aria-label': 'Moderation policy', onchange: (e) => this.policy(e.target.value) }, policies.map((name) => h('option', { value: name }, name)));
      policy.value = s.moderation_policy;
    }
    const pins = s.pinned.map((id) => {
      const known = this.room.entries.find((e) => e.id === id);
      return h('li', {}, h('bdi', {}, known?.body ? `${known.user?.display ?? ''}: ${known.body}` : `event ${id}`),
        s.pin_ends?.[id] ? span('note', `until ${time.format(new Date(s.pin_ends[id]))}`) : null,
        h('button', { type: 'button', class: 'quiet', 'data-key': `pin ${id}`, onclick: () => this.pin(id) }, 'Unpin'));
    });
    const hidden = s.blackout_regions ?? [];
    repaint(this.facts, [h('h2', {}, 'Room'), h('dl', {},
      fact('Viewers', `${(s.counters.viewers ?? 0).toLocaleString('en')}`, chart(history.map((x) => x.viewers), 'Viewers, last three minutes')),
      fact('Comments/s', many(now?.rate ?? 0), chart(history.map((x) => x.rate), 'Comments a second, last three minutes')),
      fact('Skipped', `${many(now?.skipped ?? 0)}/s`), fact('Sampled', `${many(now?.sampled ?? 0)}/s`),
      fact('State', state), fact('Moderation', policy),
      fact('Slow mode', s.slow_mode_seconds > 0 ? `one in ${seconds(s.slow_mode_seconds)}${until} ` : 'off ', h('button', { type: 'button', class: 'quiet', 'data-key': 'slow', onclick: () => this.slowMode() }, 'Change')),
      this.rights.operates && s.blackout_regions
        ? fact('Blackout', `${hidden.length === 0 ? 'nowhere' : hidden.join(', ')} `, h('button', { type: 'button', class: 'quiet', 'data-key': 'blackout', onclick: () => this.blackout() }, 'Change')) : null,
      fact('Pinned', pins.length === 0 ? 'nothing' : h('ul', { class: 'pins' }, pins))),
      h('div', { class: 'row' }, h('button', { type: 'button', class: 'danger', 'data-key': 'all', onclick: () => this.retractAll() }, 'Retract everything'))]);
    this.paintMarks();
  }

  // ---- choosing

  targets() { return this.aimed && this.selected.size === 0 ? [this.aimed] : targets(this.comments(), this.selected, this.current); }

  /** Puts a comment under the keys that may not be in the feed any more. */
  aim(comment) {
    this.selected.clear();
    this.aimed = comment;
    this.current = this.room.comment(comment.id) ? comment.id : null;
    this.paintMarks();
    this.feed.querySelector(`li[data-id="${comment.id}"]`)?.scrollIntoView({ block: 'nearest' });
  }

  unaim() {
    this.aimed = null;
    this.reports.leave();
  }

  toLive() {
    this.unaim();
    this.current = null;
    this.unread = 0;
    this.pill.hidden = true;
    this.paintMarks();
    this.feed.scrollTop = this.feed.scrollHeight;
  }

  move(by, select) {
    const comments = this.comments();
    const to = moved(comments, this.current, by);
    if (to === null) return;
    this.unaim();
    if (select) { if (this.current !== null) this.selected.add(this.current); this.selected.add(to); }
    this.current = to;
    this.paintMarks();
    this.feed.querySelector(`li[data-id="${to}"]`)?.scrollIntoView({ block: 'nearest' });
  }

  toggle(id) {
    if (id === null || id === undefined) return;
    this.unaim();
    if (this.selected.has(id)) this.selected.delete(id); else this.selected.add(id);
    this.current = id;
    this.paintMarks();
  }

  /** After something was done: nothing stays selected, the next comment is at hand. */
  done() {
    this.selected.clear();
    this.unaim();
    this.paintMarks();
    this.turnSoon();
    if (this.user) this.openUser(this.user);
  }

  audience() { return count(this.settings?.counters?.viewers ?? this.room.counters.viewers ?? 0, 'viewer'); }

  // ---- acts

  /** Asks about a retract and does it. `takes`: `{what, of}` each, `of` saying which comments. */
  askRetract({ title, effects, confirm, takes }) {
    this.acts.perform({
      title,
      effects,
      warning: 'A retract cannot be taken back.',
      danger: true,
      fields: [{ name: 'reason', label: 'What viewers are told (may be empty)', maxlength: 200 }],
      confirm,
      steps: ({ reason }) => takes.map(({ what, of }) => ({ what, run: (justification) => this.api.moderate(this.id, 'retract', { ...of, reason: reason || undefined, justification }) })),
      after: () => this.done(),
    });
  }

  retract(chosen = this.targets()) {
    if (chosen.length === 0) return;
    const who = authors(chosen);
    const one = chosen.length === 1;
    this.askRetract({
      title: one ? 'Retract this comment?' : `Retract ${count(chosen.length, 'comment')}?`,
      effects: [
        one ? `“${cut(chosen[0].body)}” by ${named(chosen[0].user)}` : `${count(chosen.length, 'comment')} by ${count(who.length, 'user')}: ${list(who)}`,
        `In ${this.id}: gone at once for ${this.audience()}, and from snapshot and resume.`,
      ],
      confirm: one ? 'Retract' : `Retract ${chosen.length}`,
      takes: chosen.map((c) => ({ what: `Retracted “${cut(c.body, 40)}” by ${named(c.user)}`, of: { event_id: c.id } })),
    });
  }

  retractUser(user) {
    this.askRetract({
      title: `Retract everything ${named(user)} said?`,
      effects: [`All comments of ${user.id} in ${this.id} up to now.`, `Gone at once for ${this.audience()}, and from snapshot and resume.`],
      confirm: 'Retract all of this user',
      takes: [{ what: `Retracted everything by ${named(user)}`, of: { user_id: user.id } }],
    });
  }

  retractAll() {
    this.askRetract({
      title: `Retract every comment of ${this.id}?`,
      effects: [`Everything that was said in ${this.id} up to now, by everyone.`, `Gone at once for ${this.audience()}, and from snapshot and resume.`],
      confirm: 'Retract everything',
      takes: [{ what: `Retracted every comment of ${this.id}`, of: { all: true } }],
    });
  }

  /** `length`: seconds of a timeout to begin with, 0 for a ban. */
  ban(length, users = authors(this.targets())) {
    askBan({ acts: this.acts, api: this.api, rights: this.rights, id: this.id, users, length, audience: () => this.audience(), after: () => this.done() });
  }

  async slowMode() {
    const before = this.settings;
    if (!before) return;
    await this.acts.perform({
      title: 'Slow mode',
      effects: [`In ${this.id}: each user may say one comment in so many seconds; moderators are exempt.`, `Now ${before.slow_mode_seconds > 0 ? `one in ${seconds(before.slow_mode_seconds)}` : 'off'}. ${this.audience()} are told.`],
      fields: [
        { name: 'seconds', label: 'Seconds between comments (0: off)', type: 'number', min: 0, max: 3600, required: true, value: before.slow_mode_seconds > 0 ? 0 : 10 },
        { name: 'minutes', label: 'For so many minutes (empty: until it is ended)', type: 'number', min: 1, max: 1440 },
      ],
      confirm: 'Set',
      steps: (values) => {
        const wanted = Number(values.seconds);
        const lasts = wanted > 0 && values.minutes ? { duration_ms: Number(values.minutes) * 60_000 } : {};
        const earlier = left(before.until_ts, Date.now());
        return [{
          what: wanted > 0 ? `Slow mode: one comment in ${seconds(wanted)}` : 'Slow mode is off',
          run: (justification) => this.api.moderate(this.id, 'slow-mode', { seconds: wanted, ...lasts, justification }),
          undo: {
            what: before.slow_mode_seconds > 0 ? `Back to ${seconds(before.slow_mode_seconds)}` : 'Back to off',
            run: (justification) => this.api.moderate(this.id, 'slow-mode', { seconds: before.slow_mode_seconds, ...(before.slow_mode_seconds > 0 && earlier ? { duration_ms: earlier } : {}), justification }),
          },
        }];
      },
      after: () => this.turnSoon(),
    });
  }

  async state(wanted) {
    const before = this.settings.state;
    document.activeElement?.blur?.();
    if (wanted === before) return;
    await this.acts.perform({
      title: `Make ${this.id} ${wanted}?`,
      effects: [
        `From ${before} to ${wanted}.`,
        { scheduled: 'Comments are taken, no scores yet.', live: 'Comments and scores are taken.', settling: 'Comments and corrections of scores are taken, no new scores. It closes by itself after settle_seconds.', closed: 'No comments, no gifts, no scores; it may still be watched.' }[wanted],
        `${this.audience()} are told.`,
      ],
      danger: wanted === 'closed',
      confirm: `Make it ${wanted}`,
      steps: () => [{
        what: `${this.id} is ${wanted}`,
        run: (justification) => this.api.moderate(this.id, 'state', { state: wanted, justification }),
        undo: { what: `Back to ${before}`, run: (justification) => this.api.moderate(this.id, 'state', { state: before, justification }) },
      }],
      after: () => this.turnSoon(),
    });
    // Cancelled too: the list shows what holds again.
    this.turnSoon();
  }

  async policy(wanted) {
    const before = this.settings.moderation_policy;
    document.activeElement?.blur?.();
    if (wanted !== before) {
      const set = (name) => (justification) => this.api.put(this.id, { moderation_policy: name, justification });
      await this.acts.perform({
        title: `Moderate ${this.id} by ${wanted}?`,
        effects: [`From ${before} to ${wanted}, for every comment from now on. ${this.audience()} are told.`],
        confirm: 'Set',
        steps: () => [{ what: `${this.id} is moderated by ${wanted}`, run: set(wanted), undo: { what: `Back to ${before}`, run: set(before) } }],
        after: () => this.turnSoon(),
      });
    }
    this.turnSoon();
  }

  async pin(id = this.targets()[0]?.id) {
    if (id === undefined || !this.settings) return;
    const { pinned: before, pin_ends: ends } = this.settings;
    const after = pinnedWith(before, id);
    const puts = !before.includes(id);
    const earlier = ends?.[id];
    /** Pins or unpins it in what is pinned at that moment, unless the room changes once more in between. */
    const set = async (wanted, justification, until) => {
      if (wanted && until) await this.api.moderate(this.id, 'pin', { event_id: id, until, justification });
      else if (!wanted) await this.api.unpin(this.id, { event_id: id, justification });
      else {
        const now = await this.api.room(this.id);
        if (now.pinned.includes(id)) return;
        await this.api.put(this.id, { pinned: pinnedWith(now.pinned, id), justification }, now.version);
      }
      this.turnSoon();
    };
    const known = this.aimed?.id === id ? this.aimed : this.room.entries.find((e) => e.id === id);
    const dropped = before.filter((p) => p !== id && !after.includes(p));
    const shown = count(after.length, 'pinned comment');
    const did = await this.acts.perform({
      title: puts ? 'Pin this comment?' : 'Unpin this comment?',
      effects: (v) => [
        known?.body ? `“${cut(known.body)}” by ${named(known.user)}` : `Event ${id}`,
        `In ${this.id}: ${this.audience()} are shown ${shown} from now on.`,
        ...(puts && Number(v.length) > 0 ? [`It is taken down by itself after ${seconds(Number(v.length))}.`] : []),
        ...(dropped.length > 0 ? ['Ten may be pinned: without an end the oldest pin goes, with one it is refused.'] : []),
      ],
      fields: puts ? [{ name: 'length', label: 'For', type: 'select', value: '0', options: PINS }] : [],
      confirm: puts ? 'Pin' : 'Unpin',
      steps: (v) => {
        const until = Number(v.length) > 0 ? new Date(Date.now() + Number(v.length) * 1000).toISOString() : undefined;
        const again = earlier && Date.parse(earlier) > Date.now() ? earlier : undefined;
        return [{
          what: puts ? `Pinned a comment${until ? ` for ${seconds(Number(v.length))}` : ''}` : 'Unpinned a comment',
          run: (justification) => set(puts, justification, until),
          undo: { what: puts ? 'Unpin' : 'Pin again', run: (justification) => set(!puts, justification, again) },
        }];
      },
    });
    if (did) this.done();
  }

  async blackout() {
    const before = this.settings.blackout_regions;
    const set = (wanted, justification) => this.api.put(this.id, { blackout_regions: wanted, justification });
    const told = (list) => (list.length === 0 ? 'everywhere' : `everywhere but in ${list.join(', ')}`);
    await this.acts.perform({
      title: `Where may ${this.id} not be shown?`,
      effects: (v) => {
        const wanted = regions(v.regions);
        return [
          `Now it is shown ${told(before)}; then ${told(wanted)}.`,
          wanted.length === 0 ? 'Who was refused may come back.' : `Streams there, and those of whom nobody knows where they are, are closed within a second: ${this.audience()} watch now.`,
        ];
      },
      danger: true,
      fields: [{ name: 'regions', label: 'Regions, such as GB or GB-SCT; none: shown everywhere', value: before.join(' '), maxlength: 512 }],
      confirm: 'Set',
      steps: (v) => {
        const wanted = regions(v.regions);
        return [{
          what: `${this.id} is shown ${told(wanted)}`,
          run: (justification) => set(wanted, justification),
          undo: { what: before.length === 0 ? 'Show it everywhere' : `Back to ${before.join(', ')}`, run: (justification) => set(before, justification) },
        }];
      },
      after: () => this.turnSoon(),
    });
  }

  // ---- the user card

  async openUser(user = this.targets()[0]?.user) {
    if (!user) return;
    const asked = {};
    const fresh = this.user?.id !== user.id;
    this.user = user;
    this.asked = asked;
    const here = this.comments().filter((c) => c.user?.id === user.id);
    const standing = h('div', { class: 'standing', role: 'status' });
    const past = h('ol', { class: 'past' });
    const note = h('p', { class: 'note', role: 'status' }, 'Reading the history…');
    const act = (text, run, danger) => h('button', { type: 'button', class: danger ? 'danger' : null, onclick: run }, text);
    this.card.hidden = false;
    this.card.replaceChildren(
      h('div', { class: 'row between' }, h('h2', {}, h('bdi', {}, shownAs(user))), h('button', { type: 'button', class: 'quiet', 'aria-label': 'Close the user card', onclick: () => this.closeUser() }, '×')),
      h('p', { class: 'id' }, user.id), h('p', { class: 'badges' }, (user.badges ?? []).map((b) => span('badge', b))),
      h('p', { class: 'note' }, `${count(here.length, 'comment')} in this view`), standing,
      h('div', { class: 'row wrap' }, act('Timeout', () => this.ban(600, [user]), true), act('Ban', () => this.ban(0, [user]), true), act('Retract all', () => this.retractUser(user), true),
        this.rights.erases && this.api.has('/admin/users/{user}', 'delete') ? act('Erase…', () => this.erase(user, here.length), true) : null),
      h('h3', {}, 'History'), past, note);
    // It may be below what is held, or below the feed of a phone; who has it open already is not moved.
    if (fresh) this.card.scrollIntoView({ block: 'nearest' });
    try {
      const [lines, { rows, more }] = await Promise.all([this.standing(user), this.history(user)]);
      if (this.asked !== asked || this.stopped) return;
      standing.replaceChildren(...lines);
      past.replaceChildren(...rows.map((row) => { const { kind, text } = told(row); return h('li', { class: kind }, span('time', row.ts ? when(row.ts) : ''), h('bdi', {}, text)); }));
      note.textContent = rows.length === 0 ? (more ? 'Nothing in the newest part of the log.' : 'Nothing in the log.') : more ? `The newest ${rows.length}.` : 'That is all in the log.';
    } catch (fault) {
      if (this.asked === asked) note.textContent = `No history: ${fault.message}`;
    }
  }

  /** Whether a user may speak here, and on the site where that may be asked, each ban with what lifts it. */
  async standing(user) {
    const asks = this.rights.operates && this.api.has('/admin/bans', 'get');
    const [, site] = await Promise.all([this.bans.turn(), asks ? this.api.siteBans({ user: user.id }) : null]);
    const line = (ban, place, none, lift) => (ban
      ? h('p', { class: 'row between' }, h('span', { class: 'banned' }, `${ban.shadow ? 'Shadowed' : 'Banned'} ${place} ${untilText(ban)}${ban.reason ? `: ${ban.reason}` : ''}`), h('button', { type: 'button', onclick: lift }, 'Lift'))
      : h('p', { class: 'note' }, none));
    const here = this.bans.of(user.id);
    const everywhere = site?.bans[0];
    const after = () => this.done();
    const liftSite = () => askLift({ acts: this.acts, api: this.api, id: null, ban: everywhere, user, after });
    return [line(here, 'here', 'Not banned here.', () => this.bans.lift(here, user)), ...(site ? [line(everywhere, 'from the site', 'Not banned from the site.', liftSite)] : [])];
  }

  closeUser() {
    this.user = null;
    this.asked = null;
    this.card.hidden = true;
    this.feed.focus();
  }

  erase(user, here) {
    // The card named the user; nothing here does any more.
    askErase({ acts: this.acts, api: this.api, user, here, audience: () => this.audience(), after: () => { this.closeUser(); this.done(); } });
  }

  /** What a user said here and what was done about it, newest first, as the log has it. */
  async history(user) {
    const events = [];
    let before;
    let more = true;
    for (let page = 0; more && events.length < HISTORY_SHOWN && page < HISTORY_PAGES; page += 1) {
      const answer = await this.api.history(this.id, { user: user.id, limit: HISTORY_SHOWN, ...(before === undefined ? {} : { before }) });
      events.push(...answer.events);
      ({ more, next: before } = answer);
    }
    return { rows: events.slice(0, HISTORY_SHOWN), more: more || events.length > HISTORY_SHOWN };
  }

  // ---- keys

  keys() {
    return [['j / k', 'next, previous comment'], ['J / K', 'and select on the way'], ['x', 'select the comment'], ['r', 'retract it, or all that are selected'], ['b', 'ban its author'],
      ['t', 'time its author out'], ['p', 'pin, unpin'], ['s', 'slow mode'], ['u', 'user card'], ...this.held.keys(), ...this.reports.keys(), ...this.desk.keys(), ['g', 'back to live'], ['Esc', 'nothing selected, back to live']];
  }

  key(key) {
    switch (key) {
      case 'j': case 'ArrowDown': this.move(1, false); return true;
      case 'k': case 'ArrowUp': this.move(-1, false); return true;
      case 'J': this.move(1, true); return true;
      case 'K': this.move(-1, true); return true;
      case 'x': this.toggle(this.current); return true;
      case 'r': this.retract(); return true;
      case 'b': this.ban(0); return true;
      case 't': this.ban(600); return true;
      case 'p': this.pin(); return true;
      case 's': this.slowMode(); return true;
      case 'u': this.openUser(); return true;
      case 'g': this.toLive(); return true;
      case 'Escape': this.selected.clear(); this.closeUser(); this.toLive(); return true;
      default: return this.held.key(key) || this.reports.key(key) || this.desk.key(key);
    }
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    this.stream.stop();
  }
}

function cut(text, most = 80) {
  const all = [...(text ?? '')];
  return all.length > most ? `${all.slice(0, most).join('')}…` : all.join('');
}

/** A line of a user's history: what it is, and in words. */
function told(row) {
  switch (row.type) {
    case 'comment': return { kind: row.retracted ? 'gone' : 'comment', text: `${row.body}${row.verdict === 'flag' ? ' (flagged)' : ''}${row.retracted ? ' (retracted)' : ''}` };
    case 'gift': return { kind: 'comment', text: `gave ${row.count ?? 1} × ${row.item}` };
    case 'ban': return { kind: 'deed', text: `${row.shadow ? 'shadowed' : row.until_ts ? 'timed out' : 'banned'}${row.until_ts ? ` until ${when(row.until_ts)}` : ''}${row.reason ? `: ${row.reason}` : ''}` };
    case 'unban': return { kind: 'deed', text: 'ban lifted' };
    case 'retract': return { kind: 'deed', text: `${row.since_ts ? `retracted what was said since ${when(row.since_ts)}` : 'everything retracted'}${row.reason ? `: ${row.reason}` : ''}` };
    case 'erased': return { kind: 'gone', text: 'erased' };
    default: return { kind: 'gone', text: row.type };
  }
}
