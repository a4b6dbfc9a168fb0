// What the console works out, without a document, a clock or a network: tested as scripts.

/** Measurements of a room that are kept: three minutes at one in two seconds. */
export const SAMPLES_MAX = 90;
/** Undo lines kept. */
export const UNDOS_MAX = 20;

/** Who a token says it is, and what of the console that opens. The server judges each call by itself. */
export function rights(claims) {
  const roles = new Set(claims.roles ?? []);
  const operates = roles.has('region-ops') || roles.has('admin');
  return {
    user: claims.sub ?? '?', roles: [...roles], rooms: claims.rooms ?? null,
    moderates: operates || (roles.has('room-mod') && Array.isArray(claims.rooms)),
    operates,
    // A key's tokens are everybody's: an admin alone takes them back.
    keys: roles.has('admin'),
    // What nothing takes back is an admin's too.
    erases: roles.has('admin'),
    exports: roles.has('admin') || roles.has('backend'),
  };
}

/** What is wrong with what was typed to erase the user `id`; `null`: nothing. The reason is kept for good, so it may not say whom it is about. */
export function eraseFault(id, { user, justification }) {
  if (user !== id) return `Type ${id} to erase this user.`;
  if (justification.includes(id)) return 'The reason is kept, so it must not name the user.';
  return null;
}

/** Adds what a room's counters say at `at` (ms) to its history; a counter that fell back began anew with its process. */
export function measure(history, counters, at) {
  const last = history.at(-1);
  const per = (name) => {
    if (!last || at <= last.at) return 0;
    return Math.max(0, (counters[name] ?? 0) - (last.counters[name] ?? 0)) / ((at - last.at) / 1000);
  };
  const sample = { at, counters, viewers: counters.viewers ?? 0, rate: per('accepted'), sampled: per('sampled'), skipped: per('skipped'), delivered: per('delivered') };
  const kept = [...history, sample];
  return kept.slice(-SAMPLES_MAX);
}

/** The points of a line over `values` in a box, newest at the right, from 0 to the highest. */
export function line(values, width, height, slots = SAMPLES_MAX) {
  if (values.length === 0) return '';
  const top = Math.max(1e-9, ...values);
  const step = width / Math.max(1, slots - 1);
  const x = (i) => width - (values.length - 1 - i) * step;
  const y = (v) => height - 1 - (v / top) * (height - 2);
  return values.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(' ');
}

/** The buckets of one histogram of Prometheus text: upper bound in seconds to count, over all label sets that `wanted` takes. */
export function buckets(text, name, wanted = () => true) {
  const found = new Map();
  for (const row of text.split('\n')) {
    if (!row.startsWith(`${name}_bucket{`)) continue;
    const end = row.lastIndexOf('}');
    const labels = row.slice(name.length + 8, end);
    if (!wanted(labels)) continue;
    const le = /le="([^"]+)"/.exec(labels)?.[1];
    const bound = le === '+Inf' ? Infinity : Number(le);
    found.set(bound, (found.get(bound) ?? 0) + Number(row.slice(end + 1)));
  }
  return found;
}

/** The bound in seconds below which a share `q` of what came between two readings lies; `null` when nothing came. */
export function quantile(before, after, q) {
  const bounds = [...after.keys()].sort((a, b) => a - b);
  const came = (bound) => (after.get(bound) ?? 0) - (before.get(bound) ?? 0);
  const all = bounds.length === 0 ? 0 : came(bounds.at(-1));
  if (all <= 0) return null;
  return bounds.find((bound) => came(bound) >= all * q) ?? Infinity;
}

/** The comment `by` places after the current one (negative: before); from nowhere the newest. */
export function moved(comments, current, by) {
  if (comments.length === 0) return null;
  const at = comments.findIndex((c) => c.id === current);
  if (at < 0) return comments.at(-1).id;
  return comments[Math.min(comments.length - 1, Math.max(0, at + by))].id;
}

/** What is acted upon: all that is selected, else the current comment. */
export function targets(comments, selected, current) {
  const chosen = comments.filter((c) => selected.has(c.id));
  return chosen.length > 0 ? chosen : comments.filter((c) => c.id === current);
}

/** The authors of comments, each once, in the order they first spoke. */
export function authors(comments) {
  const found = new Map();
  for (const c of comments) if (c.user?.id !== undefined && !found.has(c.user.id)) found.set(c.user.id, c.user);
  return [...found.values()];
}

export function count(n, one, many = `${one}s`) {
  return `${n.toLocaleString('en')} ${n === 1 ? one : many}`;
}

export function seconds(n) {
  if (n % 86_400 === 0 && n > 0) return count(n / 86_400, 'day');
  if (n % 3_600 === 0 && n > 0) return count(n / 3_600, 'hour');
  if (n % 60 === 0 && n > 0) return count(n / 60, 'minute');
  return count(n, 'second');
}

/** The justification of an undoing: why the first was done is part of it, within 200 bytes. */
export function undoing(justification) {
  let text = `undo: ${justification}`;
  while (new TextEncoder().encode(text).length > 200) text = [...text].slice(0, -1).join('');
  return text;
}

/** `room.pinned` with an event put first, or taken out; at most ten, and the oldest pin goes. */
export function pinnedWith(pinned, id) {
  return pinned.includes(id) ? pinned.filter((p) => p !== id) : [id, ...pinned].slice(0, 10);
}

/** What is left of a slow mode with an end, in ms; `undefined` without one. */
export function left(untilTs, now) {
  if (!untilTs) return undefined;
  return Math.max(1, Date.parse(untilTs) - now);
}

/** The key of a shortcut, or `null` where the reader writes or a modifier makes it the browser's. */
export function shortcut(event) {
  const tag = event.target?.tagName;
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return null;
  if (tag === 'INPUT' || tag === 'TEXTAREA' || tag === 'SELECT') return null;
  return event.key;
}

/** Whether a ban is in force at `now` (ms). */
export function holds(ban, now) {
  return ban.until_ts === null || ban.until_ts === undefined || Date.parse(ban.until_ts) > now;
}

/** Whole seconds up to a time, at least `least`; `undefined` where there is none, so that it is left out of a body. */
export function remaining(untilTs, now, least = 1) {
  if (untilTs === null || untilTs === undefined) return undefined;
  return Math.max(least, Math.ceil((Date.parse(untilTs) - now) / 1000));
}

/** Regions as somebody types them: `gb, ie` is `['GB', 'IE']`, each once. */
export function regions(text) {
  return [...new Set(text.toUpperCase().split(/[\s,;]+/).filter((part) => part !== ''))];
}

/** Which that waits is looked at: the same as before, or where it was. `ids` before and now. */
export function stays(before, now, current) {
  if (now.includes(current)) return current;
  const at = before.indexOf(current);
  const later = at < 0 ? undefined : before.slice(at + 1).find((id) => now.includes(id));
  return later ?? now[0] ?? null;
}

/** The one after `current`, after the last the first, from nowhere the first; `null` where there is none. */
export function following(ids, current) {
  return ids[(ids.indexOf(current) + 1) % ids.length] ?? null;
}

/** What is wrong with a ban as it is asked for, in words; `null` where nothing is. */
export function banFault({ scope, shadow, purge }) {
  if (shadow && purge !== '0') return 'A shadow ban takes nothing back: that would tell its user.';
  if (scope === 'site' && purge === 'all') return 'In every room at most the last 10 minutes are taken back.';
  if (scope === 'site' && Number(purge) > 10) return 'In every room at most the last 10 minutes are taken back.';
  return null;
}
