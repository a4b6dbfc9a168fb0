// What this browser keeps for the next visit. In a frame of another site, or by the reader's wish, it may keep nothing: then the page
// remembers as long as it is open.

const here = new Map();

/** The text kept under this name, or `null`. */
export function kept(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return here.get(name) ?? null;
  }
}

/** Keeps a text; `null` forgets it. */
export function keep(name, text) {
  try {
    if (text === null) localStorage.removeItem(name);
    else localStorage.setItem(name, text);
  } catch {
    if (text === null) here.delete(name);
    else here.set(name, text);
  }
}
