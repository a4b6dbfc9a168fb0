// What flies: a comment or a gift, as text that was made ready for one line, and how it looks.

/** A comment. */
export interface Say {
  readonly id: string | number;
  readonly text: string;
  /** The reader's own: marked, and dropped after all others. */
  readonly own?: boolean;
  /** `scroll` when left out. */
  readonly mode?: 'scroll' | 'top' | 'bottom';
  /** A CSS colour. */
  readonly colour?: string;
  /** The caller's; handed to what is asked on a retract. */
  readonly about?: unknown;
}

/** Something that was paid for. Given again under the same id it is the same gift with other numbers. */
export interface Gift {
  readonly id: string | number;
  readonly item: string;
  readonly count: number;
  /** What stands on it where no renderer of its own draws it. */
  readonly text: string;
  readonly about?: unknown;
}

export type Content =
  | { readonly kind: 'say'; readonly text: string; readonly direction: 'ltr' | 'rtl'; readonly own: boolean; readonly colour: string | null; readonly about: unknown }
  | { readonly kind: 'gift'; readonly gift: Gift; readonly direction: 'ltr' | 'rtl'; readonly about: unknown };

/** In CSS pixels, inside the lane. */
export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** Draws gifts of one item: the place where a pack of animations comes in. */
export interface GiftRenderer {
  /** CSS pixels that the gift takes for life, with room for what its count may grow to. `measure`: of a text, in the wall's font. */
  width(gift: Gift, measure: (text: string) => number): number;
  /** On a canvas: once a frame, clipped to its box, in CSS pixels. `ms` since it came; `still`: nothing should move. */
  canvas(context: CanvasRenderingContext2D, gift: Gift, box: Box, ms: number, still: boolean): void;
  /** In the document: once, and again when its numbers changed. */
  dom(element: HTMLElement, gift: Gift, still: boolean): void;
}

export interface Style {
  /** CSS font families. */
  readonly family: string;
  /** CSS pixels. */
  readonly size: number;
  readonly colour: string;
  /** Around the letters, so that they can be read on anything. */
  readonly edge: string;
  /** Around the reader's own comments. */
  readonly own: string;
  readonly paid: string;
  readonly paidInk: string;
  readonly removed: string;
  /** Behind a comment that stands. */
  readonly standing: string;
}

export const STYLE: Style = {
  family: 'system-ui, -apple-system, "Segoe UI", "Noto Sans", "Noto Sans CJK SC", "Noto Color Emoji", sans-serif',
  size: 22, colour: '#fff', edge: '#000c', own: '#3ecf9a', paid: '#ffbf69', paidInk: '#241500', removed: '#d5dbd8', standing: '#0a1712e6',
};

/** Characters of a comment that fly; all of it stands elsewhere. */
export const TEXT_MAX = 80;

const characters = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

/** On one line, and cut between characters as readers count them. */
export function line(text: string): string {
  const flat = text.replace(/\s+/gu, ' ').trim();
  // A character is one unit at least: most texts need not be taken apart.
  if (flat.length <= TEXT_MAX) return flat;
  let kept = '';
  let n = 0;
  for (const { segment } of characters.segment(flat)) {
    if (n === TEXT_MAX) return `${kept.trimEnd()}…`;
    kept += segment;
    n += 1;
  }
  return kept;
}

// Hebrew to Arabic extended, presentation forms, and the scripts of the supplementary plane that run to the left.
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** The direction of a text, by its first letter: what `dir="auto"` is in a document. */
export function directionOf(text: string): 'ltr' | 'rtl' {
  const first = /\p{L}/u.exec(text);
  return first && RIGHT_TO_LEFT.test(first[0]) ? 'rtl' : 'ltr';
}

/** As much of a text as `width` holds. `measure`: CSS pixels of a text. */
export function fitted(text: string, width: number, measure: (text: string) => number): string {
  if (measure(text) <= width) return text;
  const letters = [...characters.segment(text)].map((s) => s.segment);
  let [fits, over] = [0, letters.length];
  while (over - fits > 1) {
    const half = (fits + over) >> 1;
    if (measure(`${letters.slice(0, half).join('')}…`) <= width) fits = half;
    else over = half;
  }
  return `${letters.slice(0, fits).join('').trimEnd()}…`;
}
