// One WebSocket to one room, kept alive: reconnects by the protocol's ranges and resumes from the cursor it is given.

const SUBPROTOCOL = 'grandstand.v1';
/** No byte for this long (the server pings every 20-25 s, but pings are invisible here, so the page asks itself). */
const SILENCE_MS = 45_000;
const PING_MS = 20_000;

/**
 * Decorrelated back-off for failures without a code.
 * `previous` and the answer in ms, 500 to 20 000; `draw` in [0, 1).
 */
export function backoff(previous, draw) {
  return Math.min(20_000, 500 + draw * (Math.max(500, previous) * 3 - 500));
}

/** What a close code asks for: 'stop', 'wait' (use the delays told) or 'resume'. */
export function rangeOf(code) {
  if (code >= 4000 && code < 4100) return 'stop';
  if (code >= 4100 && code < 4200) return 'wait';
  if (code >= 4200 && code < 4300) return 'resume';
  return 'retry';
}

export class RoomStream {
  /** `on`: {events(list), state(name, detail), cursor() -> number, token() -> string | null}. */
  constructor(roomId, on) {
    this.path = `/v1/rooms/${encodeURIComponent(roomId)}/stream`;
    /** Where streams are opened: the page's own host, after what the server names as its address for them. */
    this.bases = [`${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}`];
    /** Failed attempts in a row; the bases take turns by it. */
    this.failed = 0;
    this.on = on;
    this.socket = null;
    this.wait = 0;
    this.stopped = false;
    this.lastResume = -Infinity;
    this.close = null;
    this.listening = new AbortController();
    const { signal } = this.listening;
    addEventListener('online', () => this.wake(), { signal });
    addEventListener('offline', () => this.drop('offline'), { signal });
    addEventListener('pageshow', () => this.wake(), { signal });
    document.addEventListener('visibilitychange', () => { if (!document.hidden) this.wake(); }, { signal });
  }

  /** `endpoints` of a snapshot or `hello`; absent where one address serves all. */
  told(endpoints) {
    const own = this.bases.at(-1);
    const named = endpoints?.websocket;
    this.bases = typeof named === 'string' && named !== own ? [named, own] : [own];
  }

  start() {
    this.stopped = false;
    clearTimeout(this.timer);
    this.timer = undefined;
    this.on.state('connecting');
    const token = this.on.token();
    const protocols = token ? [SUBPROTOCOL, `bearer.${token}`] : [SUBPROTOCOL];
    // Who brings a token is greeted at once: the cursor must come with it, as a `hello` would come too late.
    const from = token && this.on.cursor() > 0 ? `?last_event_id=${this.on.cursor()}` : '';
    const socket = new WebSocket(this.bases[this.failed % this.bases.length] + this.path + from, protocols);
    this.socket = socket;
    this.close = null;
    this.greeted = false;
    socket.onopen = () => {
      this.heard();
      if (token) return;
      const cursor = this.on.cursor();
      socket.send(JSON.stringify(cursor > 0 ? { op: 'hello', last_event_id: cursor } : { op: 'hello' }));
    };
    socket.onmessage = ({ data }) => {
      if (socket !== this.socket) return;
      this.heard();
      const parsed = JSON.parse(data);
      const events = Array.isArray(parsed) ? parsed : [parsed];
      for (const e of events) {
        if (e.type === 'hello') { this.greeted = true; this.wait = 0; this.failed = 0; this.told(e.endpoints); this.on.state('live', e); }
        if (e.type === 'close') this.close = e;
      }
      this.on.events(events);
    };
    socket.onclose = ({ code, reason }) => { if (socket === this.socket) this.ended(this.close ?? { code, reason }); };
    this.heard();
  }

  /** Anything heard counts as life; silence means the socket object is a corpse and is let go of. */
  heard() {
    clearTimeout(this.silence);
    clearTimeout(this.pinger);
    this.silence = setTimeout(() => this.drop('silence'), SILENCE_MS);
    this.pinger = setTimeout(() => this.send({ op: 'ping' }), PING_MS);
  }

  send(op) {
    if (this.socket?.readyState !== WebSocket.OPEN || !this.greeted) return false;
    this.socket.send(JSON.stringify(op));
    return true;
  }

  /** Lets go of the socket without waiting for its close to be answered. */
  drop(why) {
    const socket = this.socket;
    if (!socket) return;
    this.socket = null;
    socket.onclose = null;
    socket.close();
    this.ended({ code: 1006, reason: why });
  }

  /** Opens a new socket at once, from the cursor: another token, or the reader came back. */
  renew() {
    const socket = this.socket;
    this.socket = null;
    if (socket) { socket.onclose = null; socket.onmessage = null; socket.close(1000); }
    this.start();
  }

  /** Ends it for good: the reader went to another room. */
  stop() {
    this.stopped = true;
    this.listening.abort();
    for (const timer of [this.timer, this.silence, this.pinger]) clearTimeout(timer);
    const socket = this.socket;
    this.socket = null;
    if (socket) { socket.onclose = null; socket.onmessage = null; socket.close(1000); }
  }

  ended(close) {
    clearTimeout(this.silence);
    clearTimeout(this.pinger);
    this.socket = null;
    const range = rangeOf(close.code);
    if (range === 'stop') {
      this.stopped = true;
      this.on.state('stopped', close);
      return;
    }
    // Nobody there, or somebody else: the next attempt goes by the other way. A refusal by the server is an answer.
    if (range === 'retry' && !this.greeted) this.failed += 1;
    const now = performance.now();
    let ms;
    if (range === 'resume' && now - this.lastResume > 10_000) {
      this.lastResume = now;
      ms = 0;
    } else if (close.retry_after_ms !== undefined || close.spread_ms !== undefined) {
      ms = (close.retry_after_ms ?? 0) + Math.random() * (close.spread_ms ?? 0);
    } else {
      ms = this.wait = backoff(this.wait, Math.random());
    }
    this.on.state('waiting', { ...close, ms });
    this.timer = setTimeout(() => this.start(), ms);
  }

  /** The network or the reader is back: do not sit out a back-off that was for their absence. */
  wake() {
    if (!this.stopped && !this.socket && this.timer !== undefined && navigator.onLine) this.start();
  }
}
