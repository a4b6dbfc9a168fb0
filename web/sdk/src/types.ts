// What a client says, and what HTTP answers: the counterpart of wire.ts, which says what a server's events are.
import type { BannerEvent, CommentEvent, CounterValues, Endpoints, RoomConfig, ScoreEvent, ServerEvent } from './wire.ts';

/** The three ways a stream can come. */
export type Rung = 'websocket' | 'sse' | 'poll';

/** A way a stream can come, or another tab of this browser that has one. */
export type Way = Rung | 'tab';

/** The room's state at a position. */
export interface Snapshot {
  room_id: string;
  as_of_event_id: number;
  as_of_pseq: number;
  scores: ScoreEvent[];
  recent_comments: (CommentEvent & { sampled?: true })[];
  pinned: number[];
  counters: CounterValues;
  config: RoomConfig;
  banners: BannerEvent[];
  endpoints?: Endpoints;
}

/** One operation of a client. */
export type Op =
  | { op: 'hello'; token?: string; last_event_id?: number }
  | { op: 'publish'; client_msg_id: string; body: string; reply_to?: number }
  | { op: 'auth'; token: string }
  | { op: 'ping' }
  | { op: 'react'; event_id: number; kind: string }
  | { op: 'like'; kind?: string; n: number }
  | { op: 'report'; event_id: number; reason: string }
  | { op: 'follow' | 'unfollow'; user_id: string };

/** Why a stream ended: a `close` event, or what stood in its place. */
export interface Ended {
  /** A close code of the protocol; 1006 when nothing was said. */
  code: number;
  reason?: string | undefined;
  retry_after_ms?: number | undefined;
  spread_ms?: number | undefined;
}

/** What went wrong with the last attempt that is told at the next one. */
export type Failure = 'refused' | 'timeout' | 'silence' | 'closed' | 'answer';

/** An event as it came: of this version of the server, or of a newer one. */
export type AnyEvent = ServerEvent;

/** Which attempt this is, for whoever counts them. */
export interface Attempted {
  rung: Way;
  /** Attempts since a stream last held, this one included. */
  attempt: number;
  /** What went wrong with the last one. */
  failure: Failure | null;
}
