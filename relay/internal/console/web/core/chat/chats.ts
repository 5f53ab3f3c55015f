// The socket of a session's conversations, and its resuming: it subscribes again
// to what is followed, each from its own mark, and sends again what nobody has
// confirmed.

import { backoff, capMs } from '../backoff.ts';
import { ApiError, call, quickMs } from '../session/http.ts';
import { originOf } from '../session/origins.ts';
import type { Session } from '../session/session.ts';
import { isEvent, parseFrame, type ChatFrame } from './events.ts';
import { dropped, frameOf, heard, type Outgoing } from './outbox.ts';

// Reach says how the socket is.
export type Reach = 'connecting' | 'open' | 'lost' | 'refused';

export interface ChatHooks {
  frame(frame: ChatFrame): void;
  reach(reach: Reach): void;
  outbox(waiting: readonly Outgoing[]): void;
}

// What the console understands beyond seed 002: turn-taking, presence, runs, and
// its own messages as events.
const features = ['control', 'presence', 'runs', 'echo', 'moved'];

// Between two attempts to have a message taken that nobody can take now.
const againMs = 2_000;

// A socket that brings nothing for so long after a message was sent may be dead
// without either end knowing: a network is left without a goodbye.
const quietMs = 8_000;

// A ticket's subprotocol begins so.
const ticketPrefix = 'ticket.';

export class Chats {
  readonly #followed = new Map<string, () => number>(); // conversations, each with its mark
  readonly #owed = new Map<string, number>(); // conversations subscribed to on the socket, each with how many answers are to come
  readonly #anew = new Set<string>(); // conversations that were subscribed to once more: what comes before the answer is the former subscription's
  #outbox: readonly Outgoing[] = [];
  #socket: WebSocket | undefined;
  #reach: Reach = 'connecting';
  #failures = 0;
  #regranted = false; // one new grant was asked for after a refusal
  #running = false;
  #attempt = 0; // raised by each, and by stop: an older one is nobody's any more
  #timer: unknown;
  #retry: unknown;
  #quiet: unknown;
  #unsubscribe: (() => void) | undefined;

  constructor(private readonly session: Session, private readonly hooks: ChatHooks) {}

  get reach(): Reach {
    return this.#reach;
  }

  start(): void {
    if (this.#running) return;
    this.#running = true;
    this.#unsubscribe = this.session.onRenewed((grant) => this.say({ type: 'chat.reauth', grant }));
    void this.#connect();
  }

  stop(): void {
    this.#running = false;
    this.#attempt++;
    this.#unsubscribe?.();
    this.session.platform.clock.clearTimeout(this.#timer);
    this.session.platform.clock.clearTimeout(this.#retry);
    this.#leave();
  }

  // now connects at once, and anew: the network is another one, perhaps, and the
  // socket dead without knowing.
  now(): void {
    if (!this.#running) return;
    this.#regranted = false;
    void this.#connect();
    this.#leave();
  }

  // leave closes a socket that is not wanted any more.
  #leave(): void {
    this.session.platform.clock.clearTimeout(this.#quiet);
    this.#socket?.close(1000);
    this.#socket = undefined;
  }

  // follow subscribes to a conversation. mark is asked for at each subscription. All
  // behind it comes: of a conversation that was followed before, no event is told
  // until that is answered.
  follow(conversation: string, mark: () => number): void {
    this.#followed.set(conversation, mark);
    if (!this.say(this.#subscription([conversation]))) return;
    const owed = this.#owed.get(conversation);
    if (owed !== undefined) this.#anew.add(conversation);
    this.#owed.set(conversation, (owed ?? 0) + 1);
  }

  // answered notes the answer to a subscription.
  #answered(conversation: string): void {
    const owed = Math.max(0, (this.#owed.get(conversation) ?? 0) - 1);
    this.#owed.set(conversation, owed);
    if (owed === 0) this.#anew.delete(conversation);
  }

  unfollow(conversation: string): void {
    this.#followed.delete(conversation);
  }

  // send has a message taken once, however often sockets are lost.
  send(message: Outgoing): void {
    this.#hold([...this.#outbox, message]);
    this.#post(message);
  }

  #post(message: Outgoing): void {
    if (this.say(frameOf(message))) this.#listen();
  }

  // listen leaves the socket if nothing comes for long while a message waits for
  // its event.
  #listen(): void {
    const { clock } = this.session.platform;
    clock.clearTimeout(this.#quiet);
    if (!this.#outbox.some(({ refused }) => refused === undefined)) return;
    this.#quiet = clock.setTimeout(() => (this.#socket !== undefined && this.#socket.bufferedAmount > 0 ? this.#listen() : this.now()), quietMs);
  }

  // withdraw forgets a message that was refused.
  withdraw(name: string): void {
    this.#hold(dropped(this.#outbox, name));
  }

  // say sends what is of no use later. It reports whether there is a socket.
  say(message: object): boolean {
    if (this.#socket?.readyState !== 1) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  #subscription(conversations: Iterable<string>): object {
    const sessions = [...conversations].map((id) => ({ sessionId: id, lastSeq: this.#followed.get(id)?.() ?? 0 }));
    return { type: 'chat.subscribe', sessions };
  }

  #hold(outbox: readonly Outgoing[]): void {
    if (outbox === this.#outbox) return;
    this.#outbox = outbox;
    this.hooks.outbox(outbox);
  }

  #tell(reach: Reach): void {
    if (reach === this.#reach) return;
    this.#reach = reach;
    this.hooks.reach(reach);
  }

  async #connect(freshGrant = false): Promise<void> {
    const attempt = ++this.#attempt;
    this.session.platform.clock.clearTimeout(this.#timer);
    try {
      const { url, ticket } = await this.#ticket(freshGrant);
      if (attempt === this.#attempt) this.#open(url, ticket, attempt);
    } catch (error) {
      if (attempt !== this.#attempt) return;
      if (!(error instanceof ApiError)) throw error;
      this.#failed(error.status);
    }
  }

  async #ticket(freshGrant: boolean): Promise<{ url: string; ticket: string }> {
    const answer = await this.session.ask((origin, grant) => call(`${origin}/chat-session`, {
      method: 'POST', bearer: grant, body: { session_id: this.session.id }, ms: quickMs,
    }, this.session.platform), freshGrant);
    const { ws_url: url, ticket } = (await answer.json()) as { ws_url: string; ticket: string };
    return { url, ticket };
  }

  #open(url: string, ticket: string, attempt: number): void {
    const socket = new this.session.platform.WebSocket(new URL(url), [ticketPrefix + ticket]);
    let openedAt: number | undefined;
    const mine = () => attempt === this.#attempt;
    socket.onopen = () => {
      if (!mine()) return;
      openedAt = this.session.platform.clock.now();
      this.#socket = socket;
      this.#begin();
    };
    socket.onmessage = ({ data }) => {
      if (mine() && typeof data === 'string') this.#take(data);
    };
    socket.onclose = ({ code }) => {
      if (!mine()) return;
      this.#socket = undefined;
      this.session.platform.clock.clearTimeout(this.#quiet);
      if (openedAt !== undefined && this.session.platform.clock.now() - openedAt >= capMs) [this.#failures, this.#regranted] = [0, false];
      if (openedAt === undefined) this.session.origins.failed(originOf(url));
      this.#failed(code === 4401 ? 401 : code === 4403 ? 403 : 0);
    };
  }

  // begin subscribes to all, and sends again what waits.
  #begin(): void {
    this.#tell('open');
    this.say({ type: 'chat.hello', features });
    this.#owed.clear();
    this.#anew.clear();
    for (const id of this.#followed.keys()) this.#owed.set(id, 1);
    if (this.#followed.size > 0) this.say(this.#subscription(this.#followed.keys()));
    this.#sendAll();
  }

  #sendAll(): void {
    for (const message of this.#outbox) if (message.refused === undefined) this.#post(message);
  }

  #take(text: string): void {
    const frame = parseFrame(text);
    if (frame === undefined) return;
    if (frame.kind === 'moved') this.session.origins.moved(frame.origin, this.session.platform.clock.now());
    if (frame.kind === 'protocol_error' && frame.code === 'UNAVAILABLE' && frame.clientMessageId !== undefined) this.#sendLater();
    this.#hold(heard(this.#outbox, frame));
    this.#listen();
    if (frame.kind === 'chat_subscribed') this.#answered(frame.sessionId);
    if (frame.kind === 'protocol_error' && frame.sessionId !== null) this.#anew.delete(frame.sessionId);
    if (!isEvent(frame) || !this.#anew.has(frame.sessionId)) this.hooks.frame(frame);
  }

  // sendLater sends again what nobody could take: a pause, then all of it.
  #sendLater(): void {
    const { clock } = this.session.platform;
    clock.clearTimeout(this.#retry);
    this.#retry = clock.setTimeout(() => this.#sendAll(), againMs);
  }

  // failed connects again, once at once where the grant has ended.
  #failed(status: number): void {
    if (!this.#running) return;
    if (status === 401 && !this.#regranted) {
      this.#regranted = true;
      void this.#connect(true);
      return;
    }
    if (status === 401 || status === 403 || status === 404) {
      this.#tell('refused');
      return;
    }
    this.#tell('lost');
    const { clock, random } = this.session.platform;
    this.#timer = clock.setTimeout(() => void this.#connect(), backoff(this.#failures++, random()));
  }
}
