// The WebSocket rung. A token goes as a subprotocol, where no log sees it; without one the first frame says where to go on.
import type { Opening, Hearing, Stream, Transport } from './transport.ts';
import { attemptQuery, eventsOf, urlOf } from './transport.ts';
import type { Ended, Op } from './types.ts';

export function websocketTransport(Socket: typeof WebSocket): Transport {
  return {
    way: 'websocket',
    open({ base, roomId, cursor, token, session, attempted }: Opening, on: Hearing): Stream {
      const query = attemptQuery(attempted);
      // Who brings a token is greeted at once: the cursor must come with it, as a `hello` would come too late.
      if (token && cursor > 0) query['last_event_id'] = String(cursor);
      if (!token && session) query['session'] = session;
      const url = urlOf(base.replace(/^http/, 'ws'), roomId, 'stream', query);
      const socket = new Socket(url, token ? ['grandstand.v1', `bearer.${token}`] : ['grandstand.v1']);
      let over = false;
      let close: Ended | null = null;
      let greeted = false;
      const end = (how: Ended) => {
        if (over) return;
        over = true;
        on.ended(close ?? how, greeted ? 'closed' : 'refused');
      };
      socket.onopen = () => {
        if (!token) socket.send(JSON.stringify({ op: 'hello', ...(cursor > 0 && { last_event_id: cursor }) }));
      };
      socket.onmessage = ({ data }: MessageEvent) => {
        if (over) return;
        const list = eventsOf(String(data));
        close = list.find((e) => e.type === 'close') ?? close;
        greeted ||= list.some((e) => e.type === 'hello');
        on.events(list);
        // Nothing follows a close; its socket may take its time.
        if (close) { end(close); socket.close(); }
      };
      // Its close says the same; of the package `ws` an error that nobody hears is thrown.
      socket.onerror = () => {};
      socket.onclose = ({ code, reason }: CloseEvent) => end({ code, reason });
      return {
        send(op: Op): boolean {
          if (over || !greeted || socket.readyState !== 1) return false;
          socket.send(JSON.stringify(op));
          return true;
        },
        abandon(): void {
          over = true;
          socket.onopen = socket.onmessage = socket.onclose = null;
          // Its close may never be answered: nobody waits for it.
          try { socket.close(1000); } catch { /* not open yet, and not to be */ }
        },
      };
    },
  };
}
