// One cursor over every way a stream can come. Pure: it is told what came and when, and says what is to be done.
//
// A bookmark in a book that several readers read aloud in turn: whoever reads, pages before the bookmark were heard. It must never
// move past what was not heard, but by the server's word, and then it asks for a snapshot that is no older than the new place.
// The awkward case: two streams at once, while one hands over to the other; both give the same events, and each counts once.
import { urlOf } from './transport.ts';
import type { ServerEvent } from './wire.ts';

/** Between two snapshots that a stream asked for. */
export const REFETCH_MS = 30_000;

/** Events that a room numbers without holes. */
const PRIORITY = new Set(['score_event', 'retract', 'config', 'gift', 'gift_combo']);
/** Answers to one viewer. They name an event and are none: what lies before it in the room may still be on its way. */
const ANSWERS = new Set(['publish_ack', 'publish_commit']);

/** Something a server or a network should not have done, for whoever watches over the service. */
export type Report =
  | { kind: 'pseq_hole'; from: number; to: number }
  | { kind: 'skipped'; count: number; from: number; to: number }
  | { kind: 'snapshot_required'; reason: string };

export interface Taken {
  /** Events that are news, in order. */
  events: ServerEvent[];
  reports: Report[];
  /** Another token is wanted within so many milliseconds. */
  renew_in_ms?: number;
}

export class Session {
  /** Everything up to here was heard or is in the snapshot. 0: nothing is known. */
  cursor = 0;
  pseq: number | null = null;
  /** The name of the viewer's first stream: it keeps its part of a sampled room by it. */
  first: string | null = null;
  /** The room stands still; its socket and its picture stay. */
  paused = false;
  #roomId: string;
  /** The newest position a snapshot must reach, when one is wanted. */
  #min: number | null = null;
  #asked: number | null = null;
  #fetchedAt = -Infinity;
  #asOf = -1;

  constructor(roomId: string, cursor = 0) {
    this.#roomId = roomId;
    this.cursor = cursor;
  }

  /** Takes what one stream gave. */
  take(list: readonly ServerEvent[]): Taken {
    const taken: Taken = { events: [], reports: [] };
    for (const e of list) this.#take(e, taken);
    return taken;
  }

  #take(e: ServerEvent, taken: Taken): void {
    const id = (e as { event_id?: unknown }).event_id;
    if (typeof id === 'number' && !ANSWERS.has(e.type)) {
      if (id <= this.cursor) return;
      this.cursor = id;
      const { pseq } = e as { pseq?: unknown };
      if (PRIORITY.has(e.type) && typeof pseq === 'number') {
        if (this.pseq !== null && pseq > this.pseq + 1) {
          taken.reports.push({ kind: 'pseq_hole', from: this.pseq + 1, to: pseq - 1 });
          // What was in the hole is in a snapshot, as far as it is still worth anything.
          this.#want(id);
        }
        this.pseq = Math.max(this.pseq ?? 0, pseq);
      }
    }
    // What the room says ends a pause; an answer to one viewer does not.
    if (this.paused && (typeof id === 'number' || e.type === 'counters' || e.type === 'hello') && !ANSWERS.has(e.type)) this.paused = false;
    switch (e.type) {
      case 'hello':
        this.first ??= e.session ?? null;
        if (e.resumed === true) {
          // A stream that takes over begins where it was opened, which the other one has passed since.
          if (e.cursor >= this.cursor || this.pseq === null) this.pseq = e.pseq ?? this.pseq;
          this.cursor = Math.max(this.cursor, e.cursor);
        } else {
          if (e.cursor > this.#asOf) this.#want(e.cursor);
          this.cursor = e.cursor;
          this.pseq = e.pseq ?? null;
        }
        break;
      case 'snapshot_required':
        taken.reports.push({ kind: 'snapshot_required', reason: e.reason });
        this.cursor = e.cursor;
        this.pseq = e.pseq ?? null;
        if (e.cursor > this.#asOf || e.reason === 'unknown_cursor') this.#want(e.cursor);
        break;
      case 'feed_paused':
        this.paused = true;
        break;
      case 'skipped':
        taken.reports.push({ kind: 'skipped', count: e.count, from: e.from, to: e.to });
        break;
      case 'token_expiring':
        taken.renew_in_ms = e.in_ms;
        break;
      default:
    }
    taken.events.push(e);
  }

  #want(min: number): void {
    if (this.#asked !== null && this.#asked >= min) return;
    this.#min = Math.max(this.#min ?? 0, min);
  }

  /** A long-poll was answered: everything up to here was in its answers. */
  advance(next: number): void {
    this.cursor = Math.max(this.cursor, next);
  }

  /** When the snapshot that is wanted may be fetched; `null`: none is, or one is under way. */
  get refetchAt(): number | null {
    return this.#min === null || this.#asked !== null ? null : this.#fetchedAt + REFETCH_MS;
  }

  /** The path of the snapshot to fetch now, or `null`. It is answered by `fetched` or by `unfetched`. */
  refetch(now: number): string | null {
    const due = this.refetchAt;
    if (due === null || now < due) return null;
    this.#fetchedAt = now;
    this.#asked = this.#min;
    this.#min = null;
    return urlOf('', this.#roomId, 'snapshot', { min: String(this.#asked) });
  }

  /**
   * A snapshot is here. Of a cold load (nothing is shown yet) the stream begins at its position, or before it where the reader was
   * before: what they share is joined by id. Never behind it, though the reader had come further: a cache may have an old one.
   */
  fetched(asOf: number, pseq: number, cold: boolean): void {
    this.#asked = null;
    this.#asOf = Math.max(this.#asOf, asOf);
    if (!cold || (this.cursor > 0 && this.cursor < asOf)) return;
    this.cursor = asOf;
    this.pseq = pseq;
  }

  /** The snapshot could not be had: it is asked for again when that is due. `gone`: there is none. */
  unfetched(gone: boolean): void {
    const asked = this.#asked ?? 0;
    this.#asked = null;
    if (!gone) this.#want(asked);
  }
}
