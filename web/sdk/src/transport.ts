// What a stream is to the room: it opens, gives events, and ends. Three small ones and the other tab's are behind this.
import type { AnyEvent, Attempted, Ended, Failure, Op, Way } from './types.ts';

/** How a stream is opened. */
export interface Opening {
  /** Scheme, host and port, of http(s); the path is the transport's. */
  base: string;
  roomId: string;
  /** Where to go on; 0: at the head. */
  cursor: number;
  token: string | null;
  /** The name of the viewer's first stream, where it has no token: it keeps its part of a sampled room by it. */
  session: string | null;
  /** Tells this reader's polls from others'. */
  tab: string;
  attempted: Attempted;
}

/** What a stream tells. After `ended` nothing more. */
export interface Hearing {
  /** Events in order; an empty list is a sign of life. */
  events(list: AnyEvent[]): void;
  /** A long-poll was answered: everything up to here was in its answers. */
  advanced(cursor: number): void;
  ended(how: Ended, failure: Failure): void;
}

/** A stream that is open or opening. */
export interface Stream {
  /** Says something on it; `false` where it cannot carry that (now). */
  send(op: Op): boolean;
  /** Lets go of it. Nothing is told of it any more, whatever becomes of its socket. */
  abandon(): void;
}

export interface Transport {
  readonly way: Way;
  open(opening: Opening, on: Hearing): Stream;
}

/** The query that says which attempt this is, for whoever counts them; the rung is the route. */
export function attemptQuery({ attempt, failure }: Attempted): Record<string, string> {
  return { attempt: String(attempt), ...(failure && { failure }) };
}

/** A URL of the room's API. */
export function urlOf(base: string, roomId: string, tail: string, query: Record<string, string> = {}): string {
  const words = new URLSearchParams(query).toString();
  return `${base}/v1/rooms/${encodeURIComponent(roomId)}/${tail}${words && `?${words}`}`;
}

/** What reads a stream that comes by requests. */
export interface Reading {
  readonly signal: AbortSignal;
  /** Nobody listens any more. */
  readonly over: boolean;
  /** Something came that only a stream brings: what ends from here on was one. */
  stands: boolean;
  /** Gives events, and ends with the `close` that is among them. */
  tell(list: AnyEvent[]): void;
  end(how: Ended): void;
}

/** A stream that `read` reads until it is over; one that fails ends without a word. */
export function reading(on: Hearing, read: (it: Reading) => Promise<void>): Stream {
  const abort = new AbortController();
  const { signal } = abort;
  const it: Reading = {
    signal,
    get over() { return signal.aborted; },
    stands: false,
    tell(list) {
      on.events(list);
      const close = list.find((e) => e.type === 'close');
      if (close) it.end(close);
    },
    end(how) {
      if (it.over) return;
      abort.abort();
      on.ended(how, it.stands ? 'closed' : 'refused');
    },
  };
  read(it).catch(() => it.end({ code: 1006 }));
  return { send: () => false, abandon: () => abort.abort() };
}

/** The events of a text, in order; what is none is passed over. */
export function eventsOf(text: string): AnyEvent[] {
  try {
    return [JSON.parse(text) as AnyEvent].flat().filter((e) => typeof e === 'object' && e);
  } catch {
    return [];
  }
}

/** Asks for a stream, or a part of one. */
export function get(fetch: typeof globalThis.fetch, url: string, token: string | null, signal: AbortSignal, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(url, { headers: { ...headers, ...(token && { authorization: `Bearer ${token}` }) }, cache: 'no-store', credentials: 'omit', signal });
}
