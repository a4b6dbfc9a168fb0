// What pages say of a room's events, in words and as text nodes: shared by the room page and the console.

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

export function scoreLine(s) {
  const minute = s.minute ? `${s.minute}${/^\d/.test(s.minute) ? '′' : ''} ` : '';
  const kind = (s.kind ?? 'score').replaceAll('_', ' ');
  const figures = s.score ? ` ${s.score.home}–${s.score.away}` : '';
  const mark = s.state && s.state !== 'confirmed' ? ` (${s.state.replaceAll('_', ' ')})` : s.revision > 1 ? ' (corrected)' : '';
  return `${minute}${kind}${figures}${mark}`;
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
