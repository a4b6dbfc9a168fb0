// Which way the next stream is opened, and when. Pure: the time and the draw are the caller's.
//
// A ladder with at most three rungs. Each is tried at most twice before the next one down; a rung that worked is where the next
// visit begins; from a lower rung a higher one is tried again every five minutes, beside the stream that runs. When every rung
// has failed twice the ladder is in trouble: one attempt every one to two minutes, over the rungs in turn, until one holds. An
// answer of the server that it does not want us now is no failure of the rung, and its waits are kept to.
//
// It must never try more often than that, whatever it meets: 24 hours of outage are at most 1 460 attempts.
import { backoff, told } from './backoff.ts';
import type { Ended, Failure, Rung } from './types.ts';
import { WAITS_OF_CLOSE } from './wire.ts';

/** Attempts on one rung before the next one is tried. */
export const TRIES_MAX = 2;
/** Between two looks at a higher rung, give or take a tenth. */
export const PROBE_MS = 300_000;
/** Between two attempts when no rung works. */
export const TROUBLE_MS_MIN = 60_000;
export const TROUBLE_MS_MAX = 120_000;
/** A stream that was heard for so long has shown that its rung works. */
export const PROVEN_MS = 30_000;
/** A second `resume` within this is waited for as 41xx. */
const RESUME_AGAIN_MS = 10_000;
/** Refusals in a row after which their waits grow; and after which it is trouble. */
const REFUSED_GROW = 3;
const REFUSED_TROUBLE = 12;

/** What a close code asks for. */
export function rangeOf(code: number): 'stop' | 'wait' | 'resume' | 'retry' {
  return (['stop', 'wait', 'resume'] as const)[Math.floor(code / 100) - 40] ?? 'retry';
}

/** What is opened next. */
export interface Attempt {
  rung: Rung;
  /** How many attempts since a stream last held, this one included. */
  attempt: number;
  /** Which of the rung's addresses: failed attempts on it so far. */
  tries: number;
  failure: Failure | null;
}

export class Ladder {
  readonly rungs: readonly Rung[];
  /** Every rung failed: attempts are rare, and the reader is told. */
  trouble = false;
  /** When a higher rung is tried beside the stream; `null` at the top, or without a stream. */
  probeAt: number | null = null;
  #at: number;
  #tries = 0;
  #visited = 0;
  #attempts = 0;
  #wait = 0;
  #refused = 0;
  #probes = 0;
  #goodAt: number | null = null;
  #resumedAt = -Infinity;
  #failure: Failure | null = null;

  /** `rungs`: the choice and order, at most three. `remembered`: the one that worked last. */
  constructor(rungs: readonly Rung[], remembered?: string | null) {
    this.rungs = [...new Set(rungs)].slice(0, 3);
    if (this.rungs.length === 0) throw new Error('a ladder has at least one rung');
    this.#at = Math.max(0, this.rungs.indexOf(remembered as Rung));
  }

  get rung(): Rung {
    return this.rungs[this.#at]!;
  }

  /** What to open now. */
  open(): Attempt {
    this.#attempts += 1;
    // In trouble each rung's addresses take turns as well.
    const tries = this.trouble ? Math.floor(this.#visited / this.rungs.length) : this.#tries;
    return { rung: this.rung, attempt: this.#attempts, tries, failure: this.#failure };
  }

  /** The stream was greeted. `rung`: on which, when it is not the one that was to be opened. */
  good(now: number, draw: number, rung: Rung = this.rung): void {
    const at = this.rungs.indexOf(rung);
    if (at !== this.#at) this.#tries = 0;
    this.#at = at;
    this.#goodAt = now;
    this.#probe(now, draw);
  }

  #probe(now: number, draw: number): void {
    this.probeAt = this.#at === 0 ? null : now + PROBE_MS * (0.9 + 0.2 * draw);
  }

  /** The higher rung to look at now, when its time has come. They take turns, the highest first. */
  probe(now: number, draw: number): Attempt | null {
    if (this.probeAt === null || now < this.probeAt) return null;
    this.#probe(now, draw);
    const rung = this.rungs[this.#probes % this.#at]!;
    this.#probes += 1;
    return { rung, attempt: 1, tries: 0, failure: this.#failure };
  }

  #settle(heardAt: number): boolean {
    const proven = this.#goodAt !== null && heardAt - this.#goodAt >= PROVEN_MS;
    if (proven) {
      this.#tries = this.#visited = this.#attempts = this.#wait = this.#refused = 0;
      this.trouble = false;
    }
    this.#goodAt = null;
    this.probeAt = null;
    return proven;
  }

  /** An attempt failed, or a stream was lost without a word, last heard of then: how long to wait, in milliseconds. */
  failed(failure: Failure, heardAt: number, draw: number): number {
    const proven = this.#settle(heardAt);
    this.#failure = failure;
    if (!proven) {
      this.#tries += 1;
      if (this.trouble || this.#tries >= TRIES_MAX) {
        this.#tries = 0;
        this.#visited += 1;
        this.#at = (this.#at + 1) % this.rungs.length;
        if (this.#visited >= this.rungs.length) this.trouble = true;
      }
    }
    return this.#paced(draw);
  }

  #paced(draw: number): number {
    if (this.trouble) return TROUBLE_MS_MIN + draw * (TROUBLE_MS_MAX - TROUBLE_MS_MIN);
    this.#wait = backoff(this.#wait, draw);
    return this.#wait;
  }

  /** The server said when to come again (41xx, 42xx): how long to wait, in milliseconds. */
  refused(close: Ended, now: number, draw: number): number {
    this.#settle(now);
    this.#failure = 'answer';
    this.#refused += 1;
    const resume = !this.trouble && rangeOf(close.code) === 'resume' && now - this.#resumedAt > RESUME_AGAIN_MS;
    if (resume) {
      this.#resumedAt = now;
      return 0;
    }
    const [least, spread] = WAITS_OF_CLOSE[close.code] ?? [0, 0];
    const asked = told(close, draw) ?? least + draw * spread;
    if (this.#refused > REFUSED_TROUBLE) this.trouble = true;
    // Never earlier than it was asked for; later, when it goes on and on.
    if (this.#refused > REFUSED_GROW || asked === 0) return Math.max(asked, this.#paced(draw));
    return asked;
  }

  /** The reader or the network is back: what failed while they were away counts no more, but the pace of trouble stays. */
  woke(): void {
    if (!this.trouble) this.#tries = this.#visited = this.#wait = 0;
  }
}
