// What the core needs of the machine it runs on. A page, an extension's service
// worker and Node each have it; a test brings its own.

export interface Clock {
  now(): number; // milliseconds from some moment on; never goes back
  date(): number; // milliseconds since 1970; may jump
  setTimeout(run: () => void, ms: number): unknown;
  clearTimeout(timer: unknown): void;
}

export interface Platform {
  fetch(url: string, init: RequestInit): Promise<Response>;
  WebSocket: new (url: URL, protocols: string[]) => WebSocket;
  clock: Clock;
  random(): number; // in [0, 1)
  uuid(): string; // that nobody can guess
}

// webPlatform is what browsers provide, in pages and in workers. It looks each
// function up when it is called.
export const webPlatform: Platform = {
  fetch: (url, init) => fetch(url, init),
  get WebSocket() {
    return WebSocket;
  },
  clock: {
    now: () => performance.now(),
    date: () => Date.now(),
    setTimeout: (run, ms) => setTimeout(run, ms),
    clearTimeout: (timer) => clearTimeout(timer as number),
  },
  random: () => Math.random(),
  uuid: () => crypto.randomUUID(),
};

// pause resolves after ms milliseconds.
export const pause = (clock: Clock, ms: number): Promise<void> => new Promise((resolve) => void clock.setTimeout(resolve, ms));
