// The SSE rung, by fetch: a token travels in a header, refusals can be read, and Node has it too.
import type { Hearing, Opening, Stream, Transport } from './transport.ts';
import { attemptQuery, eventsOf, get, reading, urlOf } from './transport.ts';
import { endOf } from './http.ts';

/** A line may be as long as the server's longest event, and some. */
const LINE_MAX = 1 << 20;

/** Takes text as it comes; gives the data of each event that is whole. */
export function sseReader(): (text: string) => string[] {
  let rest = '';
  let data: string[] = [];
  return (text) => {
    const lines = (rest + text).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop()!;
    if (rest.length > LINE_MAX) throw new Error('endless');
    const whole: string[] = [];
    for (const line of lines) {
      if (line === '') {
        if (data.length > 0) whole.push(data.join('\n'));
        data = [];
      } else if (line.startsWith('data:')) {
        data.push(line.slice(line[5] === ' ' ? 6 : 5));
      }
    }
    return whole;
  };
}

export function sseTransport(fetch: typeof globalThis.fetch): Transport {
  return {
    way: 'sse',
    open({ base, roomId, cursor, token, session, attempted }: Opening, on: Hearing): Stream {
      return reading(on, async (it) => {
        const query = attemptQuery(attempted);
        if (!token && session) query['session'] = session;
        const answer = await get(fetch, urlOf(base, roomId, 'sse', query), token, it.signal, {
          accept: 'text/event-stream', ...(cursor > 0 && { 'last-event-id': String(cursor) }),
        });
        if (!answer.ok || !answer.body || !answer.headers.get('content-type')?.startsWith('text/event-stream')) {
          return it.end(await endOf(answer));
        }
        const reader = answer.body.getReader();
        const decoder = new TextDecoder();
        const take = sseReader();
        while (!it.over) {
          const { done, value } = await reader.read();
          if (it.over) return;
          if (done) return it.end({ code: 1006 });
          const list = take(decoder.decode(value, { stream: true })).flatMap(eventsOf);
          it.stands ||= list.some((e) => e.type === 'hello');
          // A comment line has no event: the stream lives.
          it.tell(list);
        }
      });
    },
  };
}
