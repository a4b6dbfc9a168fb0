// Bans as they are asked for and lifted, wherever in the console: one dialog that says what each choice comes to.

import { banFault, count, remaining, seconds } from './console-model.js';
import { when } from './words.js';

const LENGTHS = [[0, 'until it is lifted'], [60, '1 minute'], [300, '5 minutes'], [600, '10 minutes'], [3600, '1 hour'], [86_400, '1 day'], [604_800, '1 week'], [2_592_000, '30 days']];
const PURGES = [['0', 'nothing'], ['1', 'the last minute'], ['5', 'the last 5 minutes'], ['10', 'the last 10 minutes'], ['60', 'the last hour'], ['1440', 'the last day']];

export function named(user) {
  return user?.display && user.display !== user.id ? `${user.display} (${user.id})` : user?.id ?? 'somebody';
}

export function list(users, most = 5) {
  const names = users.slice(0, most).map(named).join(', ');
  return users.length > most ? `${names} and ${users.length - most} more` : names;
}

/** Until when a ban holds, in words. */
export function untilText(ban) {
  return ban.until_ts ? `until ${when(ban.until_ts)}` : 'until it is lifted';
}

/** Puts up or lifts a ban; `id`: the room, `null` for the whole site. */
const putUp = (api, id, ban) => (id === null ? api.siteBan(ban) : api.moderate(id, 'bans', ban));
const lift = (api, id, user, justification) => (id === null ? api.siteUnban(user, justification) : api.unban(id, user, justification));

/** `{user_id, seconds?, shadow?, reason?}`: what is `undefined` is not sent. */
function body(user, length, shadow, reason) {
  return { user_id: user, seconds: length || undefined, shadow: shadow || undefined, reason: reason || undefined };
}

/**
 * Asks about a ban of `users` and does it.
 *
 * `id`: the room; `null` where the whole site alone is meant. `users`: `null` where one is to be typed, `typed` to begin with.
 * `length`: seconds it begins with, 0 for one without an end.
 * `audience()`: how many see it, in words. `after()`: what follows, as of any act.
 */
export function askBan({ acts, api, rights, id, users, typed = '', length = 0, audience = () => 'every viewer', after }) {
  if (users?.length === 0) return;
  const meant = (v) => users ?? [{ id: v.user }];
  const timeout = length > 0;
  const verb = timeout ? 'Time out' : 'Ban';
  const whole = rights.operates && api.has('/admin/bans', 'post');
  const scopes = [...(id === null ? [] : [['room', `in ${id}`]]), ...(whole ? [['site', 'in every room of the site']] : [])];
  const scopeOf = (v) => v.scope ?? scopes[0][0];
  const effects = (v) => {
    const site = scopeOf(v) === 'site';
    const place = site ? 'In every room of the site' : `In ${id}`;
    const until = Number(v.seconds) > 0 ? `for ${seconds(Number(v.seconds))}` : 'until it is lifted';
    const said = v.purge === 'all' ? 'everything it said here' : `what it said in ${PURGES.find(([key]) => key === v.purge)?.[1]}`;
    return [
      meant(v).length === 1 ? `User ${meant(v)[0].id || '…'}` : list(users),
      v.shadow ? `${place}: what is said is shown to its author and the moderators alone, ${until}. Its author is not told.`
        : site ? `${place}: may neither speak nor watch, ${until}; open streams are closed within a second.` : `${place}: may watch and not speak, ${until}.`,
      v.purge === '0' ? 'What was said before stays.' : `Taken back: ${said}. ${site ? 'Every viewer loses' : `${audience()} lose`} it at once.`,
    ];
  };
  const purges = id === null ? PURGES.slice(0, 4) : [...PURGES, ['all', 'everything said here']];
  acts.perform({
    title: users === null ? `${verb} a user?` : users.length === 1 ? `${verb} ${named(users[0])}?` : `${verb} ${count(users.length, 'user')}?`,
    effects,
    warning: (v) => (v.purge === '0' ? null : 'What is taken back stays gone. The ban itself can be lifted.'),
    check: (v) => banFault({ ...v, scope: scopeOf(v) }),
    danger: true,
    fields: [
      ...(users === null ? [{ name: 'user', label: 'The user’s id', required: true, maxlength: 64, value: typed }] : []),
      ...(scopes.length > 1 ? [{ name: 'scope', label: 'Where', type: 'select', value: scopes[0][0], options: scopes }] : []),
      { name: 'seconds', label: 'For', type: 'select', options: LENGTHS, value: length },
      { name: 'purge', label: 'Take back', type: 'select', value: '0', options: purges },
      { name: 'shadow', label: 'Shadow: the user is not told, and heard by itself alone', type: 'checkbox' },
      { name: 'reason', label: 'Reason kept with it (may be empty)', maxlength: 200 },
    ],
    confirm: users === null || users.length === 1 ? verb : `${verb} ${users.length}`,
    steps: (v) => meant(v).flatMap((user) => {
      const site = scopeOf(v) === 'site';
      const where = site ? null : id;
      // "all" is a retract of its own.
      const asked = { ...body(user.id, Number(v.seconds), v.shadow, v.reason), purge_last_minutes: Number(v.purge) || undefined };
      const place = site ? ' in every room' : '';
      const held = v.shadow ? `Shadowed ${named(user)}${place}` : asked.seconds ? `Timed out ${named(user)}${place} for ${seconds(asked.seconds)}` : `Banned ${named(user)}${place}`;
      const ban = {
        what: held,
        run: (justification) => putUp(api, where, { ...asked, justification }),
        undo: {
          what: meant(v).length === 1 ? 'Lift it' : 'Lift all',
          run: (justification) => lift(api, where, user.id, justification),
        },
      };
      const take = { what: `Retracted everything by ${named(user)}`, run: (justification) => api.moderate(id, 'retract', { user_id: user.id, ...(v.reason ? { reason: v.reason } : {}), justification }) };
      return v.purge === 'all' ? [ban, take] : [ban];
    }),
    after,
  });
}

/** Asks about lifting a ban and does it. `id`: the room, `null` for one of the whole site; `ban`: as it is listed. */
export function askLift({ acts, api, id, ban, user = { id: ban.user_id }, after }) {
  acts.perform({
    title: `Lift the ban of ${named(user)}?`,
    effects: [
      `User ${ban.user_id}: ${ban.shadow ? 'shadowed' : 'banned'} ${untilText(ban)}${ban.reason ? ` (${ban.reason})` : ''}.`,
      id === null ? 'May speak again in every room that does not ban it itself.' : `May speak in ${id} again, unless the whole site bans it.`,
    ],
    confirm: 'Lift',
    steps: () => [{
      what: `Lifted the ban of ${named(user)}`,
      run: (justification) => lift(api, id, ban.user_id, justification),
      undo: {
        what: 'Ban again',
        run: (justification) => putUp(api, id, { ...body(ban.user_id, remaining(ban.until_ts, Date.now()), ban.shadow, ban.reason), justification }),
      },
    }],
    after,
  });
}
