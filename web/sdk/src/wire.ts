// What a Grandstand server says, as TypeScript. Written by crates/wire/tests/typescript.rs from the tables of crates/wire
// and its kept frames; GOLDEN=write renews it.

export interface User {
  badges: string[];
  display: string;
  id: string;
}

export interface Goals {
  away: number;
  home: number;
}

export interface Endpoints {
  api?: string;
  poll?: string;
  sse?: string[];
  websocket?: string;
}

export interface RoomConfig {
  anonymous_publish: boolean;
  cap?: number;
  emote_only?: boolean;
  members_only?: string | null;
  moderation_policy: ModerationPolicy;
  sampled: boolean;
  slow_mode_seconds: number;
  state: RoomState;
  title: string;
  unique_comment?: boolean;
  until_ts: string | null;
}

export interface CounterValues {
  as_of_ts: string;
  keep_fraction?: number;
  likes: Record<string, number>;
  viewers: number;
}

export interface BannerEvent {
  type: 'banner';
  banner_id: string;
  body?: string;
  count?: number;
  ended?: true;
  item?: string;
  source_room_id?: string;
  until_ts: string;
  user?: User;
}

export interface CloseEvent {
  type: 'close';
  code: number;
  reason: string;
  retry_after_ms?: number;
  room_id?: string;
  spread_ms?: number;
}

export interface CommentEvent {
  type: 'comment';
  body: string;
  client_msg_id?: string;
  event_id: number;
  repeats?: number;
  reply_to?: number;
  room_id: string;
  ts: string;
  user: User;
}

export interface ConfigEvent {
  type: 'config';
  cap?: number;
  emote_only?: boolean;
  event_id: number;
  members_only?: string | null;
  moderation_policy?: ModerationPolicy;
  pinned?: number[];
  pseq: number;
  room_id: string;
  sampled?: boolean;
  slow_mode_seconds?: number;
  state?: RoomState;
  title?: string;
  unique_comment?: boolean;
  until_ts?: string | null;
}

export interface CountersEvent {
  type: 'counters';
  as_of_ts: string;
  keep_fraction: number;
  likes: Record<string, number>;
  room_id: string;
  viewers: number;
}

export interface ErrorEvent {
  type: 'error';
  client_msg_id?: string;
  code: ErrorCode;
  message: string;
  retry_after_ms?: number;
  room_id?: string;
}

export interface FeedPausedEvent {
  type: 'feed_paused';
  reason: string;
  retry_after_ms: number;
  room_id: string;
  snapshot_url: string;
  spread_ms: number;
}

export interface FeedStaleEvent {
  type: 'feed_stale';
  ended?: true;
  match_id: string;
  provider: string;
  room_id: string;
  since_ts: string;
}

export interface GiftEvent {
  type: 'gift';
  amount_micros: number;
  count: number;
  currency: string;
  event_id: number;
  gift_id: string;
  item: string;
  pseq: number;
  room_id: string;
  user: User;
}

export interface GiftComboEvent {
  type: 'gift_combo';
  amount_micros: number;
  combo_id: number;
  count: number;
  currency: string;
  ended?: true;
  event_id: number;
  gifts: number;
  item: string;
  pseq: number;
  room_id: string;
  user: User;
}

export interface HelloEvent {
  type: 'hello';
  banners: BannerEvent[];
  comments: 'all' | 'some';
  config: RoomConfig;
  counters: CounterValues;
  cursor: number;
  endpoints?: Endpoints;
  pinned: number[];
  pseq: number;
  resumed: boolean;
  room_id: string;
  session: string;
}

export interface LeftEvent {
  type: 'left';
  room_id: string;
}

export interface ModerationFailedEvent {
  type: 'moderation_failed';
  client_msg_id: string;
  reason: string;
  room_id: string;
}

export interface ModerationPendingEvent {
  type: 'moderation_pending';
  client_msg_id: string;
  retry_after_ms: number;
  room_id: string;
}

export interface PongEvent {
  type: 'pong';
  room_id: string;
}

export interface PublishAckEvent {
  type: 'publish_ack';
  client_msg_id: string;
  duplicate?: true;
  event_id?: number;
  offset: number;
  partition: number;
  raw_id?: number;
  room_id: string;
  shown?: false;
}

export interface PublishCommitEvent {
  type: 'publish_commit';
  client_msg_id: string;
  event_id?: number;
  room_id: string;
  shown?: false;
}

export interface RateLimitedEvent {
  type: 'rate_limited';
  client_msg_id: string;
  reason: RateReason;
  retry_after_ms: number;
  room_id: string;
}

export interface RetractEvent {
  type: 'retract';
  all?: true;
  event_id: number;
  pseq: number;
  reason: string;
  room_id: string;
  since_ts?: string;
  target_event_id?: number;
  user_id?: string;
}

export interface ScoreEvent {
  type: 'score_event';
  event_id: number;
  historical?: true;
  key: string;
  kind: ScoreKind;
  match_id: string;
  minute: string | null;
  pseq: number;
  revision: number;
  room_id: string;
  score: Goals;
  state: ScoreState;
  superseded?: true;
}

export interface SkippedEvent {
  type: 'skipped';
  count: number;
  from: number;
  room_id: string;
  to: number;
}

export interface SnapshotRequiredEvent {
  type: 'snapshot_required';
  cursor: number;
  pseq: number;
  reason: string;
  room_id: string;
  snapshot_url: string;
}

export interface TokenExpiringEvent {
  type: 'token_expiring';
  in_ms: number;
  room_id: string;
}

/** Every event this version of the server gives. */
export type ServerEvent =
  | BannerEvent
  | CloseEvent
  | CommentEvent
  | ConfigEvent
  | CountersEvent
  | ErrorEvent
  | FeedPausedEvent
  | FeedStaleEvent
  | GiftEvent
  | GiftComboEvent
  | HelloEvent
  | LeftEvent
  | ModerationFailedEvent
  | ModerationPendingEvent
  | PongEvent
  | PublishAckEvent
  | PublishCommitEvent
  | RateLimitedEvent
  | RetractEvent
  | ScoreEvent
  | SkippedEvent
  | SnapshotRequiredEvent
  | TokenExpiringEvent;

export type ScoreKind =
  | 'kick_off'
  | 'goal'
  | 'own_goal'
  | 'penalty'
  | 'penalty_missed'
  | 'yellow_card'
  | 'second_yellow'
  | 'red_card'
  | 'substitution'
  | 'var'
  | 'half_time'
  | 'second_half'
  | 'extra_time'
  | 'penalty_shootout'
  | 'full_time'
  | 'correction'
  | 'score';

export type ScoreState =
  | 'confirmed'
  | 'provisional'
  | 'under_review'
  | 'withdrawn';

export type RoomState =
  | 'scheduled'
  | 'live'
  | 'settling'
  | 'closed';

export type ModerationPolicy =
  | 'off'
  | 'post-moderate-fast'
  | 'pre-moderate'
  | 'pre-moderate-strict';

export type ErrorCode =
  | 'bad_json'
  | 'bad_op'
  | 'bad_request'
  | 'bad_room'
  | 'bad_cursor'
  | 'bad_text'
  | 'too_long'
  | 'bad_field'
  | 'unknown_key'
  | 'not_built'
  | 'unknown_match'
  | 'bad_reply'
  | 'not_unique'
  | 'emote_only'
  | 'members_only'
  | 'no_token'
  | 'bad_token'
  | 'bad_signature'
  | 'not_allowed'
  | 'bad_origin'
  | 'banned'
  | 'no_such_room'
  | 'not_found'
  | 'blackout'
  | 'bad_method'
  | 'idempotency_conflict'
  | 'payload_conflict'
  | 'room_state'
  | 'length_required'
  | 'stale_version'
  | 'too_large'
  | 'bad_media_type'
  | 'wrong_listener'
  | 'moderation_failed'
  | 'rate_limited'
  | 'too_many'
  | 'head_too_large'
  | 'server_fault'
  | 'overloaded'
  | 'no_space'
  | 'not_ready'
  | 'outcome_unknown';

export type RateReason =
  | 'slow_mode'
  | 'user_rate'
  | 'room_rate'
  | 'ip_rate';

/** HTTP status of each error code. */
export const STATUS_OF_ERROR: Readonly<Record<ErrorCode, number>> = {
  bad_json: 400,
  bad_op: 400,
  bad_request: 400,
  bad_room: 400,
  bad_cursor: 400,
  bad_text: 422,
  too_long: 422,
  bad_field: 422,
  unknown_key: 422,
  not_built: 422,
  unknown_match: 422,
  bad_reply: 422,
  not_unique: 422,
  emote_only: 422,
  members_only: 403,
  no_token: 401,
  bad_token: 401,
  bad_signature: 401,
  not_allowed: 403,
  bad_origin: 403,
  banned: 403,
  no_such_room: 404,
  not_found: 404,
  blackout: 451,
  bad_method: 405,
  idempotency_conflict: 409,
  payload_conflict: 409,
  room_state: 409,
  length_required: 411,
  stale_version: 412,
  too_large: 413,
  bad_media_type: 415,
  wrong_listener: 421,
  moderation_failed: 422,
  rate_limited: 429,
  too_many: 429,
  head_too_large: 431,
  server_fault: 500,
  overloaded: 503,
  no_space: 503,
  not_ready: 503,
  outcome_unknown: 503,
};

/** Why each close code is given. */
export const REASON_OF_CLOSE: Readonly<Record<number, string>> = {
  4000: 'bad_request',
  4003: 'not_allowed',
  4004: 'no_such_room',
  4009: 'displaced',
  4010: 'room_ended',
  4051: 'blackout',
  4101: 'token_expired',
  4112: 'drain',
  4129: 'too_many',
  4150: 'server_fault',
  4153: 'not_ready',
  4200: 'slow_consumer',
  4201: 'resync',
  1000: 'normal',
  1001: 'going_away',
  1002: 'protocol_error',
  1007: 'not_utf8',
  1009: 'too_large',
};

/** What a client waits after a close that tells no waits: at least, and a uniform draw on top, in milliseconds. */
export const WAITS_OF_CLOSE: Readonly<Record<number, readonly [number, number]>> = {
  4101: [0, 5000],
  4112: [500, 10000],
  4129: [5000, 10000],
  4150: [1000, 10000],
  4153: [1000, 5000],
  4200: [0, 1000],
  4201: [0, 2000],
};

/** What is bounded, and by how much, in words. */
export const LIMITS: Readonly<Record<string, string>> = {
  'room id': '128 bytes',
  'user id': '64 bytes',
  'display name': '64 bytes, 32 grapheme clusters',
  'badges of a user': '8 of 32 bytes',
  '`client_msg_id`': '64 printable ASCII characters',
  '`client_msg_id` stays unique for': '600 s',
  'comment': '500 grapheme clusters and 2000 bytes',
  'combining marks of a grapheme cluster': '10',
  'nesting of JSON': '16',
  'client frame': '16 KiB',
  'HTTP request head': '8 KiB, 64 headers',
  'HTTP request body': '64 KiB',
  'token': '4 KiB',
  'score event body': '16 KiB',
  'rooms of a WebSocket': '128',
  'followed users of a connection': '200',
  'streams of a user': '16',
  'streams of an IPv4 address or IPv6 /64': '64',
  'long-polls of a user that wait': '2',
  'long-polls of an IPv4 address or IPv6 /64 that wait': '32',
  'comments of a user (default)': '2/s, burst 40',
  'comments of an address at a door, not loopback': '128/s, burst 2560',
  'reports of a user in a room': '1/s, burst 20',
  'comments of a room (default)': '2000/s',
  'likes of an operation': '50',
  'likes of a user in a room (default)': '20/s, burst 100',
  'kinds of likes of a room': '8',
  'reactions of a user in a room': '10/s, burst 20',
  'score events of a match': '20/s, burst 100',
  'wait for `hello`': '5 s',
  'SSE keepalive': '15 s',
  'WebSocket ping': 'every 20 to 25 s, pong within 10 s',
  'long-poll timeout': '1 to 30 s, default 25 s',
  'resume window (default)': '300 s',
  'comments of a resume': '500',
  'age at which a comment is passed over for a slow viewer (default)': '2 s',
  'age of an unsent priority event that closes a slow viewer': '10 s',
  'ticket': '30 s, and 120 s after its stream breaks',
  'guest token': '12 h',
  'leeway of `exp`': '30 s',
  'comments of a snapshot': '50',
  'comments of a page back': '200',
  'score revision': '1 to 1000000',
  'age of a score signature': '300 s',
  'items of a gift': '1 to 1000000',
  '`amount_micros` of a gift': '0 to 1000000000000000',
  '`currency`': '16 of A-Z a-z 0-9 _ -',
  'matches of a room': '16',
  'pinned events of a room': '10',
  'slow mode': '600 s',
};
