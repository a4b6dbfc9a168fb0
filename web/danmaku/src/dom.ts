// As elements of the document, for browsers that give no canvas and for pages that style each comment themselves. What moves is
// moved by the browser: an animation each, set going once. Elements are used again: making one and its style costs more than a text.

import { fitted, type Content } from './content.ts';
import { PAD, textOf, widthOf, type Drawer, type Look } from './drawer.ts';
import type { Entry, Placed, Stage, Wall } from './layout.ts';

/** `own`: nobody but this has written into the element, so that it may be used again. */
interface Shown { element: HTMLElement; animation: Animation | null; own: boolean }

/** Elements that are kept for the next comment. */
const SPARE_MAX = 64;

export class DomDrawer implements Drawer {
  #root: HTMLElement;
  #look: Look;
  #shown = new Map<Placed<Content>, Shown>();
  #ruler: HTMLElement;
  /** A canvas measures a text without the page being laid out; `null` where there is none. */
  #context = document.createElement('canvas').getContext('2d');
  #spare: HTMLElement[] = [];
  #css: string;
  #edges: string;
  /** Where what stands is put anew: its place depends on the stage. */
  #moved = true;

  constructor(root: HTMLElement, look: Look) {
    this.#root = root;
    this.#look = look;
    const { style: { size, family, edge }, laneHeight } = look;
    if (this.#context) this.#context.font = `600 ${size}px ${family}`;
    this.#edges = edges(edge);
    // What is inside changes nothing outside: `contain` spares the browser the look.
    this.#css = `position:absolute;left:0;top:0;height:${laneHeight}px;padding:0 ${PAD}px;box-sizing:border-box;font:600 ${size}px/${laneHeight}px ${family};`
      + 'white-space:pre;overflow:hidden;contain:strict;will-change:transform;pointer-events:none';
    this.#ruler = document.createElement('div');
    this.#ruler.className = 'danmaku-ruler';
    this.#ruler.style.cssText = `${this.#css};visibility:hidden;padding:0;height:auto;contain:none`;
    root.append(this.#ruler);
  }

  width({ what }: Entry<Content>): number {
    return widthOf(what, this.#look.gifts, (text) => this.#measure(text));
  }

  placed(placed: Placed<Content>): void {
    const element = this.#spare.pop() ?? document.createElement('div');
    this.#shown.set(placed, { element, animation: null, own: true });
    this.changed(placed);
    this.#root.append(element);
  }

  changed(placed: Placed<Content>): void {
    const shown = this.#shown.get(placed);
    if (!shown) return;
    const { element } = shown;
    const { style, gifts, placeholder, still } = this.#look;
    const { what, removed } = placed;
    element.style.cssText = `${this.#css};width:${placed.width}px`;
    this.#moved = true;
    // What stands is read, though others fly behind it.
    const standing = placed.layer === 'road' ? 'none' : style.standing;
    // A text's own direction, on a wall that runs one way.
    element.dir = 'auto';
    if (removed !== null) {
      element.className = 'danmaku-entry danmaku-removed';
      Object.assign(element.style, { color: style.removed, fontStyle: 'italic', background: standing, outline: 'none', textShadow: this.#edges });
      element.textContent = fitted(placeholder(removed), placed.width - 2 * PAD, (text) => this.#measure(text));
    } else if (what.kind === 'gift') {
      element.className = 'danmaku-entry danmaku-gift';
      const drawn = gifts.ask(what.gift, (renderer) => {
        shown.own = false;
        element.replaceChildren();
        renderer.dom(element, what.gift, still());
        return true;
      });
      if (drawn) return;
      Object.assign(element.style, { color: style.paidInk, background: style.paid, borderRadius: '99px' });
      element.textContent = textOf(what);
    } else {
      element.className = what.own ? 'danmaku-entry danmaku-comment danmaku-own' : 'danmaku-entry danmaku-comment';
      Object.assign(element.style, { color: what.colour ?? style.colour, background: standing, textShadow: this.#edges });
      if (what.own) Object.assign(element.style, { outline: `2px solid ${style.own}`, outlineOffset: '-3px', borderRadius: '6px' });
      element.textContent = what.text;
    }
  }

  gone(placed: Placed<Content>): void {
    const shown = this.#shown.get(placed);
    if (!shown) return;
    shown.animation?.cancel();
    shown.element.remove();
    if (shown.own && this.#spare.length < SPARE_MAX) this.#spare.push(shown.element);
    this.#shown.delete(placed);
  }

  held(wall: Wall<Content>, now: number): void {
    for (const [placed, { animation }] of this.#shown) {
      if (!animation) continue;
      const stands = wall.isHeld(placed);
      if (stands) animation.pause();
      else if (animation.playState === 'paused') animation.play();
      else continue;
      animation.currentTime = wall.laneTime(placed, now) - placed.since;
    }
  }

  frame(wall: Wall<Content>, now: number): void {
    if (!this.#moved) return;
    this.#moved = false;
    for (const [placed, shown] of this.#shown) {
      const y = wall.y(placed);
      if (placed.speed === 0) {
        shown.element.style.transform = `translate(${wall.x(placed, now)}px, ${y}px)`;
      } else if (shown.animation === null) {
        const ms = placed.until - placed.since;
        const from = `translate(${placed.from}px, ${y}px)`;
        const to = `translate(${placed.from - placed.speed * ms}px, ${y}px)`;
        shown.animation = shown.element.animate([{ transform: from }, { transform: to }], { duration: ms, fill: 'both' });
        shown.animation.currentTime = wall.laneTime(placed, now) - placed.since;
      }
    }
  }

  resize(_: Stage): void {
    this.#moved = true;
  }

  clear(): void {
    for (const placed of [...this.#shown.keys()]) this.gone(placed);
  }

  destroy(): void {
    this.clear();
    this.#ruler.remove();
  }

  #measure(text: string): number {
    if (this.#context) return this.#context.measureText(text).width;
    this.#ruler.textContent = text;
    return this.#ruler.getBoundingClientRect().width;
  }
}

function edges(colour: string): string {
  return [[-1, -1], [1, -1], [-1, 1], [1, 1]].map(([x, y]) => `${x}px ${y}px 1px ${colour}`).join(', ');
}
