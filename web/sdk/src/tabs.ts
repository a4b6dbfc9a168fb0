// One stream for all tabs of a browser that show the same room to the same user.
//
// The tab that holds the lock leads: it has the stream, and says on the channel what it hears. To the others it is a small server:
// they open a stream at it from their own cursor, are greeted, and are given what they miss, or told to fetch a snapshot. So a
// tab that takes over goes on from its own cursor, and nothing is missed or told twice. A leader that does not answer is deposed.
//
// It must never be two that lead for longer than a hand-over, and never none while a tab is looked at.
import type { Channel, Env, Locks } from './env.ts';
import type { Hearing, Opening, Stream, Transport } from './transport.ts';
import type { AnyEvent, Op } from './types.ts';

/** A leader is asked again after so long, and deposed when it did not answer twice. */
const ASK_MS = 3_000;
/** Events that a leader keeps for those who come. */
export const RING_MAX = 512;

/** What is said on the channel. `to`: one tab; without it all of them. */
export type Said =
  | { k: 'open'; from: string; cursor: number }
  | { k: 'op'; from: string; op: Op }
  | { k: 'leads' }
  | { k: 'wait'; to: string }
  | { k: 'list'; to?: string; list: AnyEvent[]; cursor: number; greets?: true }
  | { k: 'status'; status: unknown };

/** What a tab is told about its place. */
export interface Place {
  lead(): void;
  follow(): void;
  /** The browser gives no locks or channels here. */
  deny(): void;
}

export class Tabs {
  readonly id: string;
  #env: Env;
  #locks: Locks;
  #name: string;
  #place: Place;
  #heard: (said: Said) => void;
  #channel: Channel | null = null;
  #release: (() => void) | null = null;
  #wanting: AbortController | null = null;

  constructor(env: Env & { locks: Locks; channel: (name: string) => Channel }, name: string, id: string, place: Place, heard: (said: Said) => void) {
    this.#env = env;
    this.#locks = env.locks;
    this.#name = name;
    this.id = id;
    this.#place = place;
    this.#heard = heard;
  }

  get leads(): boolean {
    return this.#release !== null;
  }

  /** Takes the lead where nobody has it, and follows otherwise until it is free. */
  join(): void {
    try {
      this.#channel ??= this.#env.channel!(this.#name);
    } catch {
      this.#place.deny();
      return;
    }
    this.#channel.onmessage = ({ data }) => this.#heard(data as Said);
    if (this.#wanting || this.#release) return;
    const wanting = (this.#wanting = new AbortController());
    const hold = (lock: unknown) => {
      if (wanting.signal.aborted) return undefined;
      if (lock === null) {
        this.#place.follow();
        this.#request({ signal: wanting.signal }, hold);
        return undefined;
      }
      this.#wanting = null;
      return new Promise<void>((release) => {
        this.#release = release;
        this.#place.lead();
      });
    };
    this.#request({ ifAvailable: true }, hold);
  }

  #request(options: { ifAvailable?: boolean; steal?: boolean; signal?: AbortSignal }, hold: (lock: unknown) => Promise<void> | undefined): void {
    // It is refused when we let go of the wish, or where pages may keep nothing, and broken when another tab takes the lead.
    (async () => this.#locks.request(this.#name, options, hold))().catch(() => {
      if (options.signal?.aborted) return;
      if (this.#release) {
        this.#release = null;
        this.#place.follow();
        this.join();
      } else if (this.#wanting) {
        this.leave();
        this.#place.deny();
      }
    });
  }

  /** The leader does not answer: this tab leads. */
  depose(): void {
    this.#wanting?.abort();
    this.#wanting = null;
    this.#request({ steal: true }, () => new Promise<void>((release) => {
      this.#release = release;
      this.#place.lead();
    }));
  }

  /** Neither leads nor wants to. */
  rest(): void {
    this.#wanting?.abort();
    this.#wanting = null;
    const release = this.#release;
    this.#release = null;
    release?.();
  }

  say(said: Said): void {
    this.#channel?.postMessage(said);
  }

  leave(): void {
    this.rest();
    if (this.#channel) this.#channel.onmessage = null;
    this.#channel?.close();
    this.#channel = null;
  }
}

/** What a leader keeps of its stream for those who come. */
export class Ring {
  /** Everything after this is in it. */
  #floor: number;
  #list: AnyEvent[] = [];

  constructor(floor: number) {
    this.#floor = floor;
  }

  add(list: readonly AnyEvent[]): void {
    for (const e of list) if (typeof idOf(e) === 'number') this.#list.push(e);
    while (this.#list.length > RING_MAX) this.#floor = Math.max(this.#floor, idOf(this.#list.shift()!)!);
  }

  /** Starts anew: what lies between is in a snapshot. */
  cut(floor: number): void {
    this.#floor = floor;
    this.#list = [];
  }

  /** What came after `cursor`, and the number before its first priority event; `null` when it is not all here. */
  since(cursor: number): { list: AnyEvent[]; pseq: number | undefined } | null {
    if (cursor < this.#floor) return null;
    const list = this.#list.filter((e) => idOf(e)! > cursor);
    const first = list.map((e) => (e as { pseq?: number }).pseq).find((pseq) => pseq !== undefined);
    return { list, pseq: first === undefined ? undefined : first - 1 };
  }
}

function idOf(e: AnyEvent): number | undefined {
  return e.type === 'publish_ack' || e.type === 'publish_commit' ? undefined : (e as { event_id?: number }).event_id;
}

/** A stream from the tab that leads. `hear` is set to what takes its words. */
export function tabTransport(env: Env, tabs: Tabs, hear: (take: ((said: Said) => void) | null) => void): Transport {
  return {
    way: 'tab',
    open({ cursor }: Opening, on: Hearing): Stream {
      let over = false;
      let greeted = false;
      let asked = 0;
      let at = cursor;
      let timer: unknown;
      const stop = () => {
        over = true;
        env.cancel(timer);
        hear(null);
      };
      const ask = () => {
        if (over) return;
        if (asked >= 2) {
          stop();
          on.ended({ code: 1006 }, 'silence');
          return;
        }
        asked += 1;
        tabs.say({ k: 'open', from: tabs.id, cursor: at });
        timer = env.timer(ask, ASK_MS);
      };
      hear((said) => {
        if (over) return;
        if (said.k === 'wait' && said.to === tabs.id) {
          asked = 0;
          on.events([]);
        } else if (said.k === 'leads') {
          // A new one, or one that is live again.
          asked = 0;
          greeted = false;
          env.cancel(timer);
          ask();
        } else if (said.k === 'list' && (said.to === undefined ? greeted : said.to === tabs.id)) {
          if (said.greets) {
            greeted = true;
            asked = 0;
            env.cancel(timer);
          }
          on.events(said.list);
          on.advanced(said.cursor);
          at = Math.max(at, said.cursor);
        }
      });
      ask();
      return {
        send(op: Op): boolean {
          if (over || !greeted) return false;
          if (op.op === 'ping') {
            // It greets again, which says that it lives, and what was missed.
            asked = 0;
            env.cancel(timer);
            ask();
          } else {
            tabs.say({ k: 'op', from: tabs.id, op });
          }
          return true;
        },
        abandon: stop,
      };
    },
  };
}
