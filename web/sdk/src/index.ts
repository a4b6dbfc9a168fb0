// What the package exports.
export { Room, statusText } from './room.ts';
export type { RoomEvents, RoomOptions, Status, TokenReason } from './room.ts';
export { Store } from './store.ts';
export type {
  CommentLine, ConfigLine, Entry, Fate, GiftLine, Parent, Part, Score, ScoreLine, SkippedLine,
} from './store.ts';
export type { Report } from './session.ts';
export type { Attempted, Ended, Failure, Op, Rung, Snapshot, Way } from './types.ts';
export type { Hearing, Opening, Stream, Transport } from './transport.ts';
export type { Env } from './env.ts';
export type * from './wire.ts';
