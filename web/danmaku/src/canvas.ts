// On a canvas: each comment is painted once, on a small canvas of its own, and moved from there.

import { directionOf, fitted, type Content, type GiftRenderer } from './content.ts';
import { PAD, textOf, widthOf, type Drawer, type Look } from './drawer.ts';
import type { Entry, Placed, Stage, Wall } from './layout.ts';

type Surface = { canvas: HTMLCanvasElement; context: CanvasRenderingContext2D };

/** Small canvases that are kept for the next comment: making one costs more than painting it. */
const SPARE_MAX = 64;
/** Widths are rounded up to this, so that a spare one fits; device pixels. */
const STEP = 64;

/** `null` where the browser gives no canvas. */
function surface(): Surface | null {
  const canvas = document.createElement('canvas');
  const context = canvas.getContext('2d');
  return context ? { canvas, context } : null;
}

export class CanvasDrawer implements Drawer {
  #look: Look;
  #main: Surface;
  #stage: Stage = { width: 0, height: 0 };
  #ratio = 1;
  #painted = new Map<Placed<Content>, Surface>();
  #spare: Surface[] = [];
  #font: string;
  #measure: (text: string) => number;

  private constructor(root: HTMLElement, look: Look, main: Surface, ruler: Surface) {
    this.#look = look;
    this.#main = main;
    this.#font = `600 ${look.style.size}px ${look.style.family}`;
    ruler.context.font = this.#font;
    this.#measure = (text) => ruler.context.measureText(text).width;
    Object.assign(main.canvas.style, { position: 'absolute', inset: '0', width: '100%', height: '100%', pointerEvents: 'none' });
    main.canvas.className = 'danmaku-canvas';
    root.append(main.canvas);
    // The first character of a script makes the browser look for its font: not in the middle of a frame.
    ruler.context.fillText('Aa 字あ한 ع א ไ 👩‍👩‍👧', 0, 0);
  }

  static make(root: HTMLElement, look: Look): CanvasDrawer | null {
    const [main, ruler] = [surface(), surface()];
    return main && ruler ? new CanvasDrawer(root, look, main, ruler) : null;
  }

  width({ what }: Entry<Content>): number {
    return widthOf(what, this.#look.gifts, this.#measure);
  }

  placed(placed: Placed<Content>): void {
    if (this.#drawsItself(placed)) return;
    this.#paint(placed);
  }

  changed(placed: Placed<Content>): void {
    this.placed(placed);
  }

  gone(placed: Placed<Content>): void {
    const used = this.#painted.get(placed);
    this.#painted.delete(placed);
    if (used && this.#spare.length < SPARE_MAX) this.#spare.push(used);
  }

  held(): void {
    // The next frame draws it where it is.
  }

  frame(wall: Wall<Content>, now: number): void {
    const { context, canvas } = this.#main;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    for (const placed of wall.shown()) {
      const [x, y] = [wall.x(placed, now), wall.y(placed)];
      if (x >= this.#stage.width) continue;
      const what = placed.what;
      if (what.kind === 'gift' && this.#drawsItself(placed)) {
        const box = { x, y, width: placed.width, height: this.#look.laneHeight };
        const ms = wall.laneTime(placed, now) - placed.since;
        if (this.#look.gifts.ask(what.gift, (renderer) => { this.#hook(renderer, what.gift, box, ms, this.#look.still()); return true; })) continue;
        // It failed just now: from here on it is drawn like any other.
        this.#paint(placed);
      }
      const painted = this.#painted.get(placed);
      // On whole device pixels: letters between two are blurred, and cost more.
      if (painted) {
        const { width, height } = this.#pixels(placed);
        context.drawImage(painted.canvas, 0, 0, width, height, Math.round(x * this.#ratio), Math.round(y * this.#ratio), width, height);
      }
    }
  }

  resize(stage: Stage): void {
    this.#stage = stage;
    const ratio = Math.min(3, globalThis.devicePixelRatio || 1);
    this.#main.canvas.width = Math.round(stage.width * ratio);
    this.#main.canvas.height = Math.round(stage.height * ratio);
    if (ratio === this.#ratio) return;
    this.#ratio = ratio;
    this.#spare = [];
    for (const placed of [...this.#painted.keys()]) { this.#painted.delete(placed); this.#paint(placed); }
  }

  clear(): void {
    this.#painted.clear();
    this.#spare = [];
    this.#main.context.setTransform(1, 0, 0, 1, 0, 0);
    this.#main.context.clearRect(0, 0, this.#main.canvas.width, this.#main.canvas.height);
  }

  destroy(): void {
    this.clear();
    this.#main.canvas.remove();
  }

  #drawsItself({ what, removed }: Placed<Content>): boolean {
    return removed === null && what.kind === 'gift' && this.#look.gifts.has(what.gift.item);
  }

  #hook(renderer: GiftRenderer, gift: Parameters<GiftRenderer['canvas']>[1], box: Parameters<GiftRenderer['canvas']>[2], ms: number, still: boolean): void {
    const { context } = this.#main;
    context.save();
    try {
      context.setTransform(this.#ratio, 0, 0, this.#ratio, 0, 0);
      context.beginPath();
      context.rect(box.x, box.y, box.width, box.height);
      context.clip();
      context.font = this.#font;
      renderer.canvas(context, gift, box, ms, still);
    } finally {
      context.restore();
    }
  }

  /** Device pixels of one entry. */
  #pixels(placed: Placed<Content>): { width: number; height: number } {
    return { width: Math.ceil(placed.width * this.#ratio), height: Math.ceil(this.#look.laneHeight * this.#ratio) };
  }

  #surface(width: number, height: number): Surface | null {
    const wanted = Math.ceil(width / STEP) * STEP;
    const at = this.#spare.findIndex((s) => s.canvas.width === wanted && s.canvas.height === height);
    const [found] = at === -1 ? [] : this.#spare.splice(at, 1);
    if (found) {
      found.context.setTransform(1, 0, 0, 1, 0, 0);
      found.context.clearRect(0, 0, wanted, height);
      return found;
    }
    const made = surface();
    if (made) { made.canvas.width = wanted; made.canvas.height = height; }
    return made;
  }

  #paint(placed: Placed<Content>): void {
    this.gone(placed);
    const { width, height } = this.#pixels(placed);
    const made = this.#surface(width, height);
    if (!made) return;
    this.#painted.set(placed, made);
    const { context } = made;
    const { style, laneHeight, placeholder } = this.#look;
    const { what, removed } = placed;
    context.setTransform(this.#ratio, 0, 0, this.#ratio, 0, 0);
    context.textBaseline = 'middle';
    context.lineJoin = 'round';
    context.font = removed === null ? this.#font : `italic ${this.#font}`;
    const middle = laneHeight / 2;
    // What stands is read, though others fly behind it.
    const stands = placed.layer !== 'road' && (removed !== null || what.kind === 'say');
    if (stands) {
      context.fillStyle = style.standing;
      context.fillRect(0, 0, placed.width, laneHeight);
    }
    if (removed !== null) {
      const text = fitted(placeholder(removed), placed.width - 2 * PAD, this.#measure);
      this.#write(context, text, directionOf(text), placed.width, middle, style.removed, style.edge);
    } else if (what.kind === 'gift') {
      context.fillStyle = style.paid;
      context.beginPath();
      context.roundRect(0, 2, placed.width, laneHeight - 4, (laneHeight - 4) / 2);
      context.fill();
      this.#write(context, textOf(what), what.direction, placed.width, middle, style.paidInk, null);
    } else {
      if (what.own) {
        context.strokeStyle = style.own;
        context.lineWidth = 2;
        context.beginPath();
        context.roundRect(1, 2, placed.width - 2, laneHeight - 4, 6);
        context.stroke();
      }
      this.#write(context, what.text, what.direction, placed.width, middle, what.colour ?? style.colour, style.edge);
    }
  }

  #write(context: CanvasRenderingContext2D, text: string, direction: 'ltr' | 'rtl', width: number, middle: number, ink: string, edge: string | null): void {
    context.direction = direction;
    context.textAlign = direction === 'rtl' ? 'right' : 'left';
    const x = direction === 'rtl' ? width - PAD : PAD;
    if (edge !== null) {
      context.strokeStyle = edge;
      context.lineWidth = 3;
      context.strokeText(text, x, middle);
    }
    context.fillStyle = ink;
    context.fillText(text, x, middle);
  }
}
