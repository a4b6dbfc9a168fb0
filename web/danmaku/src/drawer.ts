import type { Content, Gift, GiftRenderer, Style } from './content.ts';
import type { Entry, Placed, Stage, Wall } from './layout.ts';

/** Brings a wall before the reader: on a canvas, or as elements of the document. */
export interface Drawer {
  /** CSS pixels that an entry takes. */
  width(entry: Entry<Content>): number;
  placed(placed: Placed<Content>): void;
  /** Other numbers, or taken back. */
  changed(placed: Placed<Content>): void;
  gone(placed: Placed<Content>): void;
  /** A lane was stopped, or goes on. */
  held(wall: Wall<Content>, now: number): void;
  frame(wall: Wall<Content>, now: number): void;
  resize(stage: Stage): void;
  clear(): void;
  destroy(): void;
}

export interface Look {
  readonly style: Style;
  /** CSS pixels. */
  readonly laneHeight: number;
  readonly placeholder: (reason: string) => string;
  readonly gifts: Gifts;
  /** Whether nothing should move, now. */
  readonly still: () => boolean;
}

/** Beside the letters, in CSS pixels. */
export const PAD = 8;

/** The renderers of gifts. One that throws is not asked again: a broken pack takes nothing down with it. */
export class Gifts {
  #of: Map<string, GiftRenderer>;
  #fault: (item: string, fault: unknown) => void;

  constructor(of: Readonly<Record<string, GiftRenderer>>, fault: (item: string, fault: unknown) => void) {
    this.#of = new Map(Object.entries(of));
    this.#fault = fault;
  }

  has(item: string): boolean {
    return this.#of.has(item);
  }

  /** What `ask` gives of the item's renderer; `null` where there is none, or it failed. */
  ask<R>(gift: Gift, ask: (renderer: GiftRenderer) => R): R | null {
    const renderer = this.#of.get(gift.item);
    if (!renderer) return null;
    try {
      return ask(renderer);
    } catch (fault) {
      this.#of.delete(gift.item);
      this.#fault(gift.item, fault);
      return null;
    }
  }
}

/** What an entry says as text. */
export function textOf(what: Content): string {
  return what.kind === 'say' ? what.text : what.gift.text;
}

/** CSS pixels of an entry. `measure`: of a text. */
export function widthOf(what: Content, gifts: Gifts, measure: (text: string) => number): number {
  if (what.kind === 'gift') {
    const own = gifts.ask(what.gift, (renderer) => renderer.width(what.gift, measure));
    if (own !== null && Number.isFinite(own) && own > 0) return Math.ceil(own);
    // Its count may grow by three digits.
    return Math.ceil(measure(`${what.gift.text}000`)) + 2 * PAD;
  }
  return Math.ceil(measure(what.text)) + 2 * PAD;
}
