// Speaks to the extension of the person's own browser, which runs what the control
// plane has signed. The page only carries it there.

import { pause, type Clock } from '@fairlead/core';

export const answerMs = 10_000;
// Its worker ends when it has nothing to do, and the port with it.
const heldMs = 20_000;
const longestPauseMs = 60_000;
// How often an extension that wasn't there is looked for again.
export const lookMs = 30_000;

export interface Port {
  postMessage(message: unknown): void;
  disconnect(): void;
  onMessage: { addListener(take: (message: unknown) => void): void };
  onDisconnect: { addListener(lost: () => void): void };
}

// Runtime is what browsers give to pages that an extension lets in.
export interface Runtime {
  readonly lastError?: { message?: string } | undefined;
  sendMessage(id: string, message: unknown, answer: (reply: unknown) => void): void;
  connect(id: string, info: { name: string }): Port;
}

export interface Envelope {
  commandId: string;
  traceId: string;
  target: { extensionId?: string; tabId?: number };
  jws: string;
}

export interface Found {
  extensionId: string;
  browserId: string;
}

// A SharedTab is one that the extension says is shared with a session.
export interface SharedTab {
  tabId: number;
  title: string;
  url: string;
  sessionId: string;
  expiresAt: number;
}

// runtimeOf returns what this page has of it: nothing where no extension lets the
// page in.
export function runtimeOf(world: unknown): Runtime | undefined {
  const runtime = (world as { chrome?: { runtime?: Partial<Runtime> } }).chrome?.runtime;
  return typeof runtime?.sendMessage === 'function' && typeof runtime.connect === 'function' ? (runtime as Runtime) : undefined;
}

const object = (value: unknown): Record<string, unknown> => (typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {});

export class Extension {
  #last = 0; // of the request ids

  constructor(private readonly runtime: Runtime | undefined, private readonly clock: Clock) {}

  // find returns the first of ids that answers, and which installation it is. It
  // tells it the session with which tabs may be shared.
  async find(ids: readonly string[], session: { id: string; name: string }): Promise<Found | undefined> {
    for (const extensionId of ids) {
      try {
        const reply = await this.#ask(extensionId, { type: 'driver', action: 'describe', requestId: this.#id(), session });
        const { browserId } = object(reply.data);
        if (reply.ok === true && typeof browserId === 'string' && /^br_[a-z2-7]{26}$/.test(browserId)) return { extensionId, browserId };
      } catch {
        // The next one may be there.
      }
    }
    return undefined;
  }

  // invoke hands a command on as it came. It fails with what a person may read.
  async invoke({ commandId, traceId, target: { extensionId, tabId }, jws }: Envelope, known: string | undefined): Promise<void> {
    const to = extensionId ?? known;
    if (to === undefined || to === '') throw new Error('it names no extension, and none was found here');
    const reply = await this.#ask(to, { type: 'driver', action: 'invoke', requestId: this.#id(), commandId, traceId, target: { tabId }, jws });
    if (reply.ok === true) return;
    const { name, message } = object(reply.error);
    throw new Error(`the extension refused it (${String(name ?? 'Error')}): ${String(message ?? 'without a reason')}`);
  }

  // connect opens a port, for one message at least.
  connect(id: string): Port {
    if (this.runtime === undefined) throw new Error('no extension lets this page in');
    return this.runtime.connect(id, { name: 'driver' });
  }

  // follow holds a port until stop, and passes on what the extension says is
  // shared with the session. Before each port it looks for the extension: what was
  // loaded anew has forgotten the session, or is another installation.
  follow(look: () => Promise<Found | undefined>, session: string, take: (tabs: SharedTab[]) => void, stop: AbortSignal): void {
    const run = async () => {
      for (let failures = 0; !stop.aborted; ) {
        const found = await look();
        if (found === undefined) {
          await pause(this.clock, lookMs);
          continue;
        }
        const began = this.clock.now();
        await this.#listen(found.extensionId, (message) => {
          const said = object(message);
          if (said.type !== 'shared' || said.browserId !== found.browserId || !Array.isArray(said.tabs)) return;
          take((said.tabs as SharedTab[]).filter((tab) => tab.sessionId === session));
        }, stop);
        failures = this.clock.now() - began >= heldMs ? 0 : failures + 1;
        await pause(this.clock, Math.min(1_000 * 2 ** failures, longestPauseMs));
      }
    };
    void run();
  }

  // listen ends with the port.
  #listen(id: string, take: (message: unknown) => void, stop: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      let port: Port;
      try {
        port = this.connect(id);
      } catch {
        return resolve();
      }
      const leave = () => {
        port.disconnect();
        resolve();
      };
      stop.addEventListener('abort', leave, { once: true });
      port.onMessage.addListener(take);
      port.onDisconnect.addListener(() => {
        void this.runtime?.lastError; // it must be read
        stop.removeEventListener('abort', leave);
        resolve();
      });
    });
  }

  // id is one of this page's own (seed 003).
  #id(): string {
    this.#last = Math.max(this.#last + 1, this.clock.date());
    return `web-${this.#last}`;
  }

  #ask(id: string, message: { requestId: string; [more: string]: unknown }): Promise<Record<string, unknown>> {
    return new Promise((resolve, reject) => {
      const { runtime } = this;
      if (runtime === undefined) return reject(new Error('this browser has no extension that lets this page in'));
      const timer = this.clock.setTimeout(() => reject(new Error('the extension didn’t answer in 10 s')), answerMs);
      try {
        runtime.sendMessage(id, message, (reply) => {
          this.clock.clearTimeout(timer);
          const error = runtime.lastError;
          if (error != null) return reject(new Error(`the extension can’t be reached: ${error.message ?? 'no reason'}`));
          const said = object(reply);
          if (said.requestId !== message.requestId) return reject(new Error('the extension gave no answer to this'));
          resolve(said);
        });
      } catch (error) {
        this.clock.clearTimeout(timer);
        reject(new Error(`the extension can’t be reached: ${error instanceof Error ? error.message : 'no reason'}`));
      }
    });
  }
}
