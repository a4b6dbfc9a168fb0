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

/** Reads JSON, or gives `null`. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
