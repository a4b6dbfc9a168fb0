// The world around a room: clock, chance, network, page. Everything that is not a rule comes through here, so that a test can be the world.

/** Where a cursor is kept: localStorage, or anything like it. */
export interface Keeper {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
}

/** What a page tells. */
export interface PageHearing {
  shown(): void;
  hid(): void;
  /** It came back from the browser's cache, where its sockets died. */
  restored(): void;
  online(): void;
  offline(): void;
}

export interface Page {
  hidden(): boolean;
  online(): boolean;
  /** Returns what ends it. */
  listen(on: PageHearing): () => void;
}

/** The part of Web Locks that is used. */
export interface Locks {
  request(name: string, options: { ifAvailable?: boolean; steal?: boolean; signal?: AbortSignal }, held: (lock: unknown) => Promise<void> | undefined): Promise<unknown>;
}

export interface Channel {
  postMessage(message: unknown): void;
  onmessage: ((event: { data: unknown }) => void) | null;
  close(): void;
}

export interface Env {
  /** Milliseconds of the wall clock. */
  now(): number;
  /** Uniform in [0, 1). */
  random(): number;
  timer(fire: () => void, ms: number): unknown;
  cancel(timer: unknown): void;
  fetch: typeof globalThis.fetch;
  WebSocket: typeof globalThis.WebSocket | null;
  keeper: Keeper | null;
  page: Page | null;
  locks: Locks | null;
  channel: ((name: string) => Channel) | null;
}

/** A browser's page, where there is one. */
function pageHere(): Page | null {
  if (typeof document === 'undefined' || typeof addEventListener === 'undefined') return null;
  return {
    hidden: () => document.hidden,
    online: () => navigator.onLine,
    listen(on) {
      const listening = new AbortController();
      const { signal } = listening;
      document.addEventListener('visibilitychange', () => (document.hidden ? on.hid() : on.shown()), { signal });
      addEventListener('pageshow', (e) => { if (e.persisted) on.restored(); }, { signal });
      addEventListener('pagehide', () => on.hid(), { signal });
      addEventListener('online', () => on.online(), { signal });
      addEventListener('offline', () => on.offline(), { signal });
      return () => listening.abort();
    },
  };
}

function keeperHere(): Keeper | null {
  try {
    // Reading it throws where storage is forbidden; Node has none.
    return typeof document === 'undefined' ? null : globalThis.localStorage ?? null;
  } catch {
    return null;
  }
}

/** The world this runs in: a browser, Node or Deno. */
export function here(): Env {
  const page = pageHere();
  return {
    now: () => Date.now(),
    random: () => Math.random(),
    timer: (fire, ms) => setTimeout(fire, ms),
    cancel: (timer) => clearTimeout(timer as number),
    fetch: (input, init) => globalThis.fetch(input, init),
    WebSocket: globalThis.WebSocket ?? null,
    keeper: keeperHere(),
    page,
    locks: page ? ((globalThis.navigator?.locks as Locks | undefined) ?? null) : null,
    channel: page && typeof BroadcastChannel !== 'undefined' ? (name) => new BroadcastChannel(name) as unknown as Channel : null,
  };
}
