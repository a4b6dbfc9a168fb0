// The long-poll rung: one request after the other, each from where the last one ended.
import type { Hearing, Opening, Stream, Transport } from './transport.ts';
import { attemptQuery, urlOf } from './transport.ts';
import { endOf } from './http.ts';
import type { AnyEvent, Ended } from './types.ts';

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
      const abort = new AbortController();
      let over = false;
      let answered = false;
      const end = (how: Ended) => {
        if (over) return;
        over = true;
        on.ended(how, answered ? 'closed' : 'refused');
        abort.abort();
      };
      const read = async () => {
        let since = cursor;
        while (!over) {
          const mine = token();
          // The first one is answered at once, so that it is known whether this way is open.
          const query: Record<string, string> = { timeout: String(answered ? POLL_S : 1), tab, ...(answered ? {} : attemptQuery(attempted)) };
          if (since > 0) query['since'] = String(since);
          if (!mine && session) query['session'] = session;
          const answer = await fetch(urlOf(base, roomId, 'poll', query), {
            headers: mine ? { authorization: `Bearer ${mine}` } : {}, cache: 'no-store', credentials: 'omit', signal: abort.signal,
          });
          if (over) return;
          if (answer.status === 204) return end({ code: 1006, reason: 'a newer poll' });
          if (!answer.ok) return end(await endOf(answer));
          const got = (await answer.json()) as Answer;
          if (over) return;
          if (!Array.isArray(got.events) || typeof got.next_since !== 'number') return end({ code: 1006, reason: 'not a poll' });
          answered = true;
          on.events(got.events);
          if (over) return;
          const close = got.events.find((e) => e.type === 'close');
          if (close) return end(close);
          since = got.next_since;
          on.advanced(since);
        }
      };
      read().catch(() => end({ code: 1006 }));
      return {
        send: () => false,
        abandon(): void {
          over = true;
          abort.abort();
        },
      };
    },
  };
}
