// A wall of comments over a video: it keeps time, listens to the reader, and hands everything else to the layout and a drawer.
// It is beside what can be read at leisure, never instead: it drops what it has no room for, and assistive technology passes it over.

import { CanvasDrawer } from './canvas.ts';
import { directionOf, line, STYLE, type Content, type Gift, type GiftRenderer, type Say, type Style } from './content.ts';
import { DomDrawer } from './dom.ts';
import { Gifts, type Drawer, type Look } from './drawer.ts';
import { Wall, type Counts, type Entry, type Rules } from './layout.ts';

export { Wall, RULES, type Counts, type Entry, type Mode, type Placed, type Rank, type Rules, type Stage } from './layout.ts';
export { STYLE, TEXT_MAX, type Box, type Content, type Gift, type GiftRenderer, type Say, type Style } from './content.ts';

export interface Options {
  /** `auto`: a canvas where there is one, else elements. */
  readonly drawer?: 'auto' | 'canvas' | 'dom';
  readonly rules?: Partial<Rules>;
  readonly style?: Partial<Style>;
  /** Renderers of gifts by item. */
  readonly gifts?: Readonly<Record<string, GiftRenderer>>;
  /** What stands in the place of what was taken back. */
  readonly placeholder?: (reason: string) => string;
  /** Told when a renderer of gifts threw; it is not asked again. */
  readonly onFault?: (item: string, fault: unknown) => void;
}

export class Danmaku {
  #root: HTMLElement;
  #wall: Wall<Content>;
  #drawer: Drawer;
  #listening = new AbortController();
  #sizes: ResizeObserver;
  #frame: number | null = null;
  /** The time of the last frame: what the reader points at is where it was then. */
  #seen = 0;
  #stopped = false;

  /** `root`: an element that lies over the video. It lets the pointer through; the element around it is listened to. */
  constructor(root: HTMLElement, options: Options = {}) {
    this.#root = root;
    const style = { ...STYLE, ...options.style };
    const rules = { laneHeight: Math.ceil(style.size * 1.5), ...options.rules };
    const look: Look = {
      style, laneHeight: rules.laneHeight,
      placeholder: options.placeholder ?? ((reason) => (reason === '' ? 'Removed' : `Removed: ${reason}`)),
      still: () => this.#wall.still,
      gifts: new Gifts(options.gifts ?? {}, options.onFault ?? ((item, fault) => console.error(`the renderer of ${item} failed`, fault))),
    };
    Object.assign(root.style, { overflow: 'hidden', pointerEvents: 'none', direction: 'ltr' });
    if (getComputedStyle(root).position === 'static') root.style.position = 'relative';
    root.setAttribute('aria-hidden', 'true');
    const calm = matchMedia('(prefers-reduced-motion: reduce)');
    this.#wall = new Wall(sizeOf(root), rules, calm.matches);
    const wanted = options.drawer ?? 'auto';
    this.#drawer = (wanted === 'dom' ? null : CanvasDrawer.make(root, look)) ?? new DomDrawer(root, look);
    this.#drawer.resize(this.#wall.stage);
    const { signal } = this.#listening;
    calm.addEventListener('change', () => this.clear(calm.matches), { signal });
    // Nobody looks, and no frame comes: what is said meanwhile is not news when the reader is back.
    document.addEventListener('visibilitychange', () => { if (document.hidden) this.clear(); }, { signal });
    const around = root.parentElement ?? root;
    around.addEventListener('pointermove', (event) => { if (event.pointerType === 'mouse') this.#point(event.clientX, event.clientY); }, { signal, passive: true });
    around.addEventListener('pointerleave', () => this.#hold(null), { signal });
    this.#sizes = new ResizeObserver(() => {
      this.#wall.resize(sizeOf(root));
      this.#drawer.resize(this.#wall.stage);
      this.#run();
    });
    this.#sizes.observe(root);
  }

  get counts(): Counts {
    return this.#wall.counts;
  }

  /** Entries that are shown now. */
  get visible(): number {
    return this.#wall.visible;
  }

  /** A comment; `false` when it is there already, or nobody would see it. */
  say(say: Say): boolean {
    const text = line(say.text);
    if (text === '') return false;
    return this.#offer({
      id: say.id, rank: say.own ? 'own' : 'comment', mode: say.mode ?? 'scroll',
      what: { kind: 'say', text, direction: directionOf(text), own: say.own ?? false, colour: say.colour ?? null, about: say.about },
    });
  }

  /** A gift, or new numbers of one that waits or is shown. */
  give(gift: Gift): boolean {
    const text = line(gift.text);
    const what: Content = { kind: 'gift', gift: { ...gift, text }, direction: directionOf(text), about: gift.about };
    if (!this.#wall.has(gift.id)) return this.#offer({ id: gift.id, rank: 'paid', mode: 'scroll', what });
    const placed = this.#wall.update(gift.id, what);
    if (placed) { this.#drawer.changed(placed); this.#run(); }
    return true;
  }

  /** Takes back what `hits`: what is shown is replaced in its place. */
  retract(hits: (about: unknown, id: string | number) => boolean, reason = ''): void {
    for (const placed of this.#wall.retract((what, id) => hits(what.about, id), reason)) this.#drawer.changed(placed);
    this.#run();
  }

  /** Takes everything away. */
  clear(still: boolean = this.#wall.still): void {
    this.#wall.clear(still);
    this.#drawer.clear();
  }

  /** Nothing is shown and nothing taken until `start`. */
  stop(): void {
    this.#stopped = true;
    this.clear();
  }

  start(): void {
    this.#stopped = false;
  }

  destroy(): void {
    this.stop();
    this.#listening.abort();
    this.#sizes.disconnect();
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
    this.#drawer.destroy();
  }

  #offer(entry: Entry<Content>): boolean {
    if (this.#stopped || document.hidden || !this.#wall.offer(entry, performance.now())) return false;
    this.#run();
    return true;
  }

  #point(clientX: number, clientY: number): void {
    const { left, top } = this.#root.getBoundingClientRect();
    this.#hold(this.#wall.at(clientX - left, clientY - top, this.#seen));
  }

  #hold(placed: ReturnType<Wall<Content>['at']>): void {
    if (this.#wall.hold(placed, this.#seen)) this.#drawer.held(this.#wall, this.#seen);
  }

  /** Frames are asked for while there is something to show. */
  #run(): void {
    if (this.#frame !== null || this.#stopped) return;
    this.#frame = requestAnimationFrame((now) => {
      this.#frame = null;
      this.#seen = now;
      const { placed, gone } = this.#wall.step(now, (entry) => this.#drawer.width(entry));
      for (const one of gone) this.#drawer.gone(one);
      for (const one of placed) this.#drawer.placed(one);
      this.#drawer.frame(this.#wall, now);
      if (this.#wall.visible > 0 || this.#wall.waiting > 0) this.#run();
    });
  }
}

function sizeOf(root: HTMLElement): { width: number; height: number } {
  return { width: root.clientWidth, height: root.clientHeight };
}
