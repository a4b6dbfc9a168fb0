// The long-poll rung: one request after the other, each from where the last one ended.
import type { Hearing, Opening, Stream, Transport } from './transport.ts';
import { attemptQuery, get, reading, urlOf } from './transport.ts';
import { endOf } from './http.ts';
import type { AnyEvent } from './types.ts';

/** How long the server may wait with an answer. */
export const POLL_S = 25;

interface Answer {
  events: AnyEvent[];
  next_since: number;
}

export function pollTransport(fetch: typeof globalThis.fetch, token: () => string | null): Transport {
  return {
    way: 'poll',
    open({ base, roomId, cursor, session, tab, attempted }: Opening, on: Hearing): Stream {
      return reading(on, async (it) => {
        let since = cursor;
        while (!it.over) {
          const mine = token();
          // The first one is answered at once, so that it is known whether this way is open.
          const query: Record<string, string> = { timeout: String(it.stands ? POLL_S : 1), tab, ...(it.stands ? {} : attemptQuery(attempted)) };
          if (since > 0) query['since'] = String(since);
          if (!mine && session) query['session'] = session;
          const answer = await get(fetch, urlOf(base, roomId, 'poll', query), mine, it.signal);
          if (it.over) return;
          if (answer.status === 204) return it.end({ code: 1006, reason: 'displaced' });
          if (!answer.ok) return it.end(await endOf(answer));
          const got = (await answer.json()) as Answer;
          if (it.over) return;
          if (!Array.isArray(got.events) || typeof got.next_since !== 'number') return it.end({ code: 1006 });
          it.stands = true;
          it.tell(got.events);
          if (it.over) return;
          since = got.next_since;
          on.advanced(since);
        }
      });
    },
  };
}
