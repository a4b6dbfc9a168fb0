// What the package exports.
export { Room } from './room.ts';
export { statusText } from './options.ts';
export type { RoomEvents, RoomOptions, Status, TokenReason } from './options.ts';
export { Store } from './store.ts';
export type {
  CommentEntry, ConfigEntry, Entry, Fate, GiftEntry, Parent, Part, Score, ScoreEntry, SkippedEntry,
} from './store.ts';
export type { Report } from './session.ts';
export type { Attempted, Ended, Failure, Op, Rung, Snapshot, Way } from './types.ts';
export type { Hearing, Opening, Stream, Transport } from './transport.ts';
export type { Env } from './env.ts';
export type * from './wire.ts';
