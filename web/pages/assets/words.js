// What pages say of a room's events, in words and as text nodes: shared by all of them.

/** A member of a token, as it says of itself; the server alone judges it. */
export function claim(token, key) {
  try {
    const part = token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/');
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(part), (c) => c.charCodeAt(0))))[key];
  } catch {
    return undefined;
  }
}

/** What a user is called; the id where there is no name. */
export function shownAs(user, nobody = 'someone') {
  return user?.display ?? user?.id ?? nobody;
}

/** Characters of a comment that stand over an answer to it. */
const QUOTE_MAX = 90;

/** A text cut to `QUOTE_MAX` characters, as readers count them. */
export function cut(body) {
  // A character is one unit at least: most comments need not be taken apart.
  if (body.length <= QUOTE_MAX) return body;
  const letters = [...new Intl.Segmenter(undefined, { granularity: 'grapheme' }).segment(body.slice(0, 16 * QUOTE_MAX))];
  return letters.length > QUOTE_MAX ? `${letters.slice(0, QUOTE_MAX).map((l) => l.segment).join('').trimEnd()}…` : body;
}

/** Why a comment was refused, where the server says it in one word. */
export function reasonText(reason) {
  switch (reason) {
    case 'slow_mode': return 'slow mode';
    case 'user_rate': return 'you write too fast';
    case 'room_rate': return 'the room is too busy';
    case 'ip_rate': return 'too many from your address';
    case 'moderation': return 'not allowed by moderation';
    default: return reason ?? 'too many';
  }
}

/** What a change of a room's settings says to its viewers. */
export function configLine(config) {
  const { slow_mode_seconds: seconds } = config;
  if (seconds === undefined) return `The room is ${config.state}.`;
  return seconds > 0 ? `Slow mode: one comment every ${seconds} s.` : 'Slow mode is off.';
}

/** Kinds of likes with their totals, the most liked first. */
export function likesShown(room) {
  return Object.entries(room.counters.likes ?? {}).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
}

/** What the badge of a sampled room says at length; `null` when everyone is shown everything. */
export function sampledText(room) {
  if (!room.config.sampled) return null;
  const cap = room.config.cap ? `at most ${room.config.cap} comments a second` : 'a part of the comments';
  const keep = room.counters.keep_fraction;
  const part = typeof keep === 'number' && keep < 1 ? `, now about ${Number((keep * 100).toPrecision(2))} % of what is said` : '';
  return `You are shown ${cap}${part}. Scores and gifts are complete.`;
}

const stamp = new Intl.DateTimeFormat(undefined, { dateStyle: 'short', timeStyle: 'medium' });
/** A time as `ts` is: its day and the second. */
export function when(ts) {
  return stamp.format(new Date(ts));
}

export function span(className, content) {
  const s = document.createElement('span');
  s.className = className;
  s.textContent = content;
  return s;
}

const HUE_STEPS = 24;
/** Of a user's id, so that one user keeps one colour. */
export function hue(name) {
  let h = 0;
  for (const c of name) h = (h * 31 + c.codePointAt(0)) >>> 0;
  return (h % HUE_STEPS) * (360 / HUE_STEPS);
}

/** A minute of a match as it is said; `null` where there is none. */
function minuteText({ minute }) {
  return minute ? `${minute}${/^\d/.test(minute) ? '′' : ''}` : null;
}

/** What a score is that is not simply so; `null` when it is. */
function unusual({ state, revision }) {
  if (state && state !== 'confirmed') return state.replaceAll('_', ' ');
  return revision > 1 ? 'corrected' : null;
}

export function scoreLine(s) {
  const [minute, mark] = [minuteText(s), unusual(s)];
  const kind = (s.kind ?? 'score').replaceAll('_', ' ');
  const figures = s.score ? ` ${s.score.home}–${s.score.away}` : '';
  return `${minute ? `${minute} ` : ''}${kind}${figures}${mark ? ` (${mark})` : ''}`;
}

/** What stands beside the figures of a match. */
export function scoreMarks(s) {
  return [minuteText(s), unusual(s), s.silentSince ? 'no word from the ground' : null].filter((mark) => mark !== null);
}

/** Millionths of a currency as its country writes them; a platform's own coins as a number with their name. */
export function money(micros, currency) {
  const amount = micros / 1e6;
  if (/^[A-Z]{3}$/.test(currency ?? '')) {
    try {
      return new Intl.NumberFormat(undefined, { style: 'currency', currency }).format(amount);
    } catch { /* three letters that are no currency */ }
  }
  return `${new Intl.NumberFormat().format(amount)} ${(currency ?? '').replaceAll('_', ' ')}`;
}

/**
 * An element: attributes by name, listeners by `on…`, and children, where text is always a text node. What is `null`, `undefined`
 * or `false` is left out.
 */
export function h(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) e.addEventListener(name.slice(2), value);
    else if (name === 'class') e.className = value;
    else if (name === 'value') e.value = value;
    else e.setAttribute(name, value === true ? '' : String(value));
  }
  e.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return e;
}
