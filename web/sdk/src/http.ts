// What an HTTP answer means: the stream's end, or an event in the place of one.
import type { AnyEvent, Ended, Op } from './types.ts';
import { urlOf } from './transport.ts';

/** A problem document of the server: what a proxy or a captive portal says has no `code`. */
interface Problem {
  code?: string | number;
  type?: string;
  detail?: string;
  reason?: string;
  retry_after_ms?: number;
  spread_ms?: number;
}

async function bodyOf(answer: Response): Promise<Problem> {
  try {
    return Object(await answer.json()) as Problem;
  } catch {
    return {};
  }
}

/** What it says of when to come again; a header may, where there is no body of ours. */
function retryOf(answer: Response, { retry_after_ms, spread_ms }: Problem): Pick<Ended, 'retry_after_ms' | 'spread_ms'> {
  const seconds = Number(answer.headers.get('retry-after'));
  return { retry_after_ms: retry_after_ms ?? (seconds > 0 ? seconds * 1000 : undefined), spread_ms };
}

/** How a stream ended that was refused by this answer. What the server did not say itself is a failure of the way. */
export async function endOf(answer: Response): Promise<Ended> {
  const body = await bodyOf(answer);
  if (typeof body.code === 'number') return { code: body.code, reason: body.reason, ...retryOf(answer, body) };
  const { status } = answer;
  const retry = retryOf(answer, body);
  // A proxy may say when to come again, too.
  if (typeof body.code !== 'string' && !(retry.retry_after_ms !== undefined && (status === 429 || status === 503))) return { code: 1006, reason: `HTTP ${status}` };
  const of: Record<number, number> = { 400: 4000, 401: 4101, 403: 4003, 404: 4004, 429: 4129, 451: 4051, 500: 4150, 503: 4153 };
  return { code: of[status] ?? 1006, reason: body.detail ?? String(body.code ?? status), ...retry };
}

/** One request with a token and JSON. Rejects when there was no answer. */
export function ask(fetch: typeof globalThis.fetch, url: string, token: string | null, body?: unknown): Promise<Response> {
  return fetch(url, {
    credentials: 'omit',
    headers: { ...(token && { authorization: `Bearer ${token}` }), ...(body !== undefined && { 'content-type': 'application/json' }) },
    ...(body !== undefined && { method: 'POST', body: JSON.stringify(body) }),
  });
}

/** Says by HTTP what a WebSocket would carry. The answer as the events a WebSocket would have given. Rejects when there was none. */
export async function post(fetch: typeof globalThis.fetch, base: string, roomId: string, token: string | null, op: Op): Promise<AnyEvent[]> {
  const { op: name, ...body } = op;
  const tail = { publish: 'comments', like: 'likes', react: 'reactions', report: 'reports' }[name as 'publish'];
  if (!tail) return [];
  const answer = await ask(fetch, urlOf(base, roomId, tail), token, body);
  const got = await bodyOf(answer);
  const key = (body as { client_msg_id?: string }).client_msg_id;
  if (answer.ok) return 'type' in got && key !== undefined ? [got as unknown as AnyEvent] : [];
  const { retry_after_ms } = retryOf(answer, got);
  const about = { room_id: roomId, client_msg_id: key, retry_after_ms };
  // Without a code it was not the server that answered, and nothing is known.
  if (typeof got.code !== 'string') throw new Error(`HTTP ${answer.status}`);
  if (got.code === 'rate_limited') return [{ type: 'rate_limited', ...about, reason: got.reason ?? 'user_rate' } as AnyEvent];
  if (got.code === 'moderation_failed' && key !== undefined) return [{ type: 'moderation_failed', ...about, reason: got.reason ?? got.detail ?? '' } as AnyEvent];
  return [{ type: 'error', ...about, code: got.code, message: got.detail ?? got.code } as AnyEvent];
}
