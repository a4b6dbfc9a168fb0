// How long to wait before the next attempt. Pure: the draw is the caller's.

/** The shortest and the longest wait after a failure without a word from the server. */
export const WAIT_MS_MIN = 500;
export const WAIT_MS_MAX = 20_000;

/**
 * Decorrelated jitter: a wait between the least and three times the last one, so that clients who failed together come
 * back apart. `previous` and the answer in milliseconds, `draw` in [0, 1).
 */
export function backoff(previous: number, draw: number): number {
  return Math.min(WAIT_MS_MAX, WAIT_MS_MIN + draw * (Math.max(WAIT_MS_MIN, previous) * 3 - WAIT_MS_MIN));
}

/** What a server asks for: `retry_after_ms` and a uniform draw of `spread_ms`; `null` when it says neither. */
export function told(said: { retry_after_ms?: number | undefined; spread_ms?: number | undefined }, draw: number): number | null {
  if (said.retry_after_ms === undefined && said.spread_ms === undefined) return null;
  return (said.retry_after_ms ?? 0) + draw * (said.spread_ms ?? 0);
}
