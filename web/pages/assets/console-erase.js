// A user who is erased: an admin's act that nothing takes back, so it is asked about with the id typed once more.

import { named } from './console-ban.js';
import { count, eraseFault } from './console-model.js';

/**
 * Asks about erasing `user` and does it.
 *
 * `here`: how many of its comments this view shows. `audience()`: how many see the room, in words. `after()`: what follows once it was done.
 */
export function askErase({ acts, api, user, here, audience = () => 'every viewer', after }) {
  return acts.perform({
    title: `Erase ${named(user)}?`,
    effects: [
      `User ${user.id}: everything it said and gave, in every room, is taken back, ${count(here, 'comment')} of it in this view. ${audience()} lose it at once.`,
      'Within a minute its id, its names, its keys and its words are in no file of the server: log, ledger, snapshots and checkpoints. Backups are yours to go through.',
      'That something was there stays: when, in which room, with which verdict. So do what this user did as an operator and what others wrote about it.',
      'Its bans and revocations go too. It is no ban: whoever comes back under this id is new.',
    ],
    warning: 'This cannot be undone. Note the number of the erase with the request it answers: nothing here tells afterwards whom it was about.',
    check: (v) => eraseFault(user.id, v),
    danger: true,
    fresh: true,
    fields: [{ name: 'user', label: 'The user’s id, once more', required: true, maxlength: 64 }],
    confirm: 'Erase for good',
    steps: () => [{
      what: 'Erase of a user',
      told: (answer) => `Erased a user: number ${answer.event_id}, in every file within ${answer.within_seconds} seconds`,
      run: (justification) => api.erase(user.id, justification),
    }],
    after,
  });
}
