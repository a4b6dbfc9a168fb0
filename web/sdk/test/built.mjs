// The package as tsc writes it, module by module; `cargo xtask sdk` builds it and says where in BUILT.
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../..');
const dist = path.join(process.env.BUILT ?? path.join(root, 'target/web'), 'sdk/dist');
const module = (name) => import(pathToFileURL(path.join(dist, `${name}.js`)));

export const { WAIT_MS_MAX, WAIT_MS_MIN, backoff, told } = await module('backoff');
export const { Ladder, PROBE_MS, PROVEN_MS, TRIES_MAX, TROUBLE_MS_MAX, TROUBLE_MS_MIN, rangeOf } = await module('ladder');
export const { REFETCH_MS, Session } = await module('session');
export const { ANSWER_MS, ENTRIES_MAX, Store, TOMBSTONES_MAX } = await module('store');
export const { sseReader } = await module('sse');
export const { Room } = await module('room');
export const { statusText } = await module('options');
export { root };
export const { websocketTransport } = await module('websocket');
export const { sseTransport } = await module('sse');
export const { pollTransport } = await module('poll');
