// What a room is made with, and what it tells.
import type { Env } from './env.ts';
import type { Report } from './session.ts';
import type { Part } from './store.ts';
import type { Transport } from './transport.ts';
import type { AnyEvent, Rung, Way } from './types.ts';

/** Why a token is wanted. */
export type TokenReason = 'start' | 'expiring' | 'expired';

export interface RoomOptions {
  /** The server's address: scheme, host, port. In a page of the server itself it may be left out. */
  url?: string;
  /** The room's id. */
  room: string;
  /** A token, or what gives one: asked at the start, before it runs out, and when it has run out. `null`: watch as nobody. */
  token?: string | null | ((reason: TokenReason) => string | null | Promise<string | null>);
  /** Which ways are tried, and in which order; at most three. Default: `websocket`, `sse`, `poll`. */
  rungs?: readonly Rung[];
  /** Base URLs of single transports, before those the server names. A stream that cannot be had there is sought at `url`. */
  endpoints?: { websocket?: string; sse?: string | readonly string[]; poll?: string; api?: string };
  /** The first connect waits a uniform draw of so many milliseconds, at most 3 000: for pages that many open in the same second. */
  connect_spread_ms?: number;
  /** One stream for all tabs that show this room to this user (default), where the browser can. */
  share?: boolean;
  /** Go on connecting while the page is hidden. Default: a stream that breaks then is opened again when the page is shown. */
  reconnect_hidden?: boolean;
  /** Where the cursor is kept, so that a reload resumes; `null`: nowhere. Default: localStorage in a browser. */
  storage?: Pick<Storage, 'getItem' | 'setItem'> | null;
  /** The world to run in. Node 20 has no WebSocket: `{ WebSocket }` of the package `ws` gives it that rung. The rest is for tests. */
  env?: Partial<Env>;
  /** Other transports, for tests. */
  transports?: Partial<Record<Rung, Transport>>;
}

/** How it stands with the stream. */
export interface Status {
  /**
   * `idle` before the start; `connecting`; `live`; `paused`: the room stands still and goes on by itself; `waiting` for the next attempt;
   * `trouble`: every way failed, attempts are rare; `hidden`, `offline`: until the page or the network is back; `stopped` for good.
   */
  state: 'idle' | 'connecting' | 'live' | 'paused' | 'waiting' | 'trouble' | 'hidden' | 'offline' | 'stopped';
  /** The way the stream comes by. */
  way: Way | null;
  /** Until the next attempt, in milliseconds from when it was said. */
  wait_ms?: number | undefined;
  /** Why it was stopped, or what ended the last stream. */
  code?: number | undefined;
  /** The same in a word. */
  reason?: string | undefined;
  /** When the newest comment was said, in milliseconds; `null`: none is known. */
  last_comment_at: number | null;
}

/** What a room tells, and with what. */
export interface RoomEvents {
  /** The store changed in these parts; once for everything that came together. */
  change: Set<Part>;
  /** It stands otherwise with the stream. */
  status: Status;
  /** Every event as it came, each once. */
  event: AnyEvent;
  /** Something that should not have happened, for whoever watches over the service. */
  report: Report;
}

/** What a status says to a reader; times in the reader's own clock. */
export function statusText(status: Status): string {
  const seconds = Math.round((status.wait_ms ?? 0) / 1000);
  switch (status.state) {
    case 'live': return 'Live';
    case 'paused': return 'Paused: the room goes on by itself';
    case 'waiting': return seconds > 1 ? `Reconnecting in ${seconds} s` : 'Reconnecting…';
    case 'trouble': {
      if (status.last_comment_at === null) return 'Connection problems';
      const at = new Date(status.last_comment_at);
      return `Connection problems, last comment at ${String(at.getHours()).padStart(2, '0')}:${String(at.getMinutes()).padStart(2, '0')}`;
    }
    case 'offline': return 'Offline';
    case 'hidden': return 'Asleep until it is looked at';
    case 'stopped': return 'Stopped';
    default: return 'Connecting…';
  }
}
