// Messages that a person has written and that wait for their turn: for the
// connection, the end of a run, or the person's own turn to write. One of a
// conversation's is on its way at a time, so that their order stays. Those that wait
// and those that nobody has confirmed are kept in a store that may outlive the page,
// with their names, under which the sandbox takes each of them once.

import type { Clock } from '../platform.ts';
import { isEvent, type ChatEvent, type ChatFrame } from './events.ts';
import { dropped, type Outgoing } from './outbox.ts';

// A Store keeps one text.
export interface Store {
  get(): string | null;
  set(text: string | null): void;
}

export interface QueueHooks {
  send(message: Outgoing): void;
  withdraw(name: string): void; // a message that was sent and isn't confirmed
  changed(): void;
}

// So many characters of messages are kept: a tab's store takes five million.
export const keptChars = 2 << 20;

// After it was said that something runs of which nothing is to be seen here (a
// person in a terminal, say), this long passes before the next attempt.
const busyMs = 5_000;

// A Standing is how a conversation stands, as far as its frames say.
interface Standing {
  ready: boolean; // it is followed, and the frames are of the present
  running: boolean;
  elsewhere: boolean; // it goes on in a terminal
  controller: string; // '' when nobody writes
  mark: number;
  busyUntil: number;
}

export class Queue {
  #held: readonly Outgoing[];
  #sent: readonly Outgoing[] = []; // as the socket's outbox has them
  readonly #standings = new Map<string, Standing>();
  readonly #lost = new Set<string>(); // names of those that there was no room for

  constructor(private readonly options: { you: string; store: Store; clock: Clock }, private readonly hooks: QueueHooks) {
    this.#held = restored(options.store.get(), options.you);
  }

  // held are those that wait for their turn.
  get held(): readonly Outgoing[] {
    return this.#held;
  }

  // conversations are those that must be followed for what waits.
  get conversations(): Set<string> {
    return new Set([...this.#sent, ...this.#held].filter(({ refused }) => refused === undefined).map(({ conversation }) => conversation));
  }

  // mark is the highest number of an event of a conversation that has come.
  mark(conversation: string): number {
    return this.#standings.get(conversation)?.mark ?? 0;
  }

  // keeps reports whether a message is there after a reload of the page.
  keeps(name: string): boolean {
    return !this.#lost.has(name);
  }

  add(message: Outgoing): void {
    this.#hold([...this.#held, message]);
    this.#send();
  }

  drop(name: string): void {
    this.#hold(dropped(this.#held, name));
    this.#send();
  }

  // outbox takes what was sent and isn't confirmed.
  outbox(sent: readonly Outgoing[]): void {
    this.#sent = sent;
    this.#keep();
  }

  // known takes rows of the history: what they name has arrived.
  known(rows: readonly ChatEvent[]): void {
    for (const row of rows) if (row.kind === 'text' && row.clientMessageId !== undefined) this.#arrived(row.clientMessageId);
    this.#send();
  }

  frame(frame: ChatFrame): void {
    if (frame.kind === 'protocol_error') this.#refused(frame.code, frame.clientMessageId);
    else if (frame.kind !== 'moved' && frame.kind !== 'session_upserted') this.#standings.set(frame.sessionId, stands(this.#standing(frame.sessionId), frame));
    if (frame.kind === 'text' && frame.clientMessageId !== undefined) this.#arrived(frame.clientMessageId);
    this.#send();
  }

  // lost: what is known of the conversations may be of the past.
  lost(): void {
    for (const [id, standing] of this.#standings) this.#standings.set(id, { ...standing, ready: false });
  }

  #standing(conversation: string): Standing {
    return this.#standings.get(conversation) ?? { ready: false, running: false, elsewhere: false, controller: '', mark: 0, busyUntil: 0 };
  }

  #arrived(name: string): void {
    this.#hold(dropped(this.#held, name));
    if (this.#sent.some((message) => message.name === name)) this.hooks.withdraw(name);
  }

  // refused takes a message back that came while something ran: it waits again.
  #refused(code: string, name: string | undefined): void {
    const message = this.#sent.find((other) => other.name === name);
    if (code !== 'RUN_IN_PROGRESS' || message === undefined) return;
    const { refused: _, ...again } = message;
    const { clock } = this.options;
    this.#standings.set(message.conversation, { ...this.#standing(message.conversation), busyUntil: clock.now() + busyMs });
    clock.setTimeout(() => this.#send(), busyMs);
    this.hooks.withdraw(message.name);
    this.#hold([again, ...this.#held]);
  }

  // send sends what may be sent now.
  #send(): void {
    for (const conversation of this.conversations) {
      const next = this.#held.find((message) => message.conversation === conversation && message.refused === undefined);
      if (next === undefined || !this.#may(conversation)) continue;
      this.#held = dropped(this.#held, next.name);
      this.hooks.send(next);
    }
  }

  #may(conversation: string): boolean {
    const { ready, running, elsewhere, controller, busyUntil } = this.#standing(conversation);
    return ready && !running && !elsewhere && (controller === '' || controller === this.options.you) && this.options.clock.now() >= busyUntil &&
      !this.#sent.some((message) => message.conversation === conversation && message.refused === undefined);
  }

  #hold(held: readonly Outgoing[]): void {
    if (held === this.#held) return;
    this.#held = held;
    this.#keep();
  }

  // keep stores as many as there is room for, in order.
  #keep(): void {
    this.#lost.clear();
    let left = keptChars;
    const kept = [...this.#sent, ...this.#held].filter((message) => {
      left -= JSON.stringify(message).length;
      if (left < 0) this.#lost.add(message.name);
      return left >= 0;
    });
    this.options.store.set(kept.length === 0 ? null : JSON.stringify({ you: this.options.you, messages: kept }));
    this.hooks.changed();
  }
}

// stands is how a conversation stands after a frame.
function stands(before: Standing, frame: Exclude<ChatFrame, { kind: 'protocol_error' | 'moved' | 'session_upserted' }>): Standing {
  const s = isEvent(frame) && frame.seq !== undefined ? { ...before, mark: Math.max(before.mark, frame.seq) } : before;
  switch (frame.kind) {
    case 'chat_subscribed':
      return { ...s, ready: true, running: frame.isProcessing };
    case 'control_state':
      return { ...s, controller: frame.controller };
    case 'run_state':
      return { ...s, running: s.running || frame.state !== 'idle', elsewhere: frame.terminal !== undefined }; // its complete is still to come
    case 'text':
      return frame.role === 'user' ? { ...s, running: true } : s;
    case 'complete':
      return { ...s, running: false, busyUntil: 0 };
    default:
      return s;
  }
}

// restored reads what was kept for the same person.
function restored(text: string | null, you: string): Outgoing[] {
  try {
    const kept = JSON.parse(text ?? 'null') as { you: string; messages: Outgoing[] } | null;
    if (kept?.you !== you) return [];
    return kept.messages.filter(({ name, conversation, content, images, options }) =>
      typeof name === 'string' && typeof conversation === 'string' && typeof content === 'string' && Array.isArray(images) && typeof options === 'object');
  } catch {
    return []; // it was kept by another version
  }
}
