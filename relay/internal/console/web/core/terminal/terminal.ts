// One terminal of a session: its connection, who controls it, and whether what
// is typed may leave. A page may have as many as it likes.

import { closedToOthers, momentary, type ClientMessage, type Person, type ServerMessage } from '../protocol.ts';
import type { Session } from '../session/session.ts';
import { hasEnded, type Connection } from './connection.ts';
import { atWork, controls, nobody, terms, update, type Control } from './control.ts';
import { alone, idle, seen, unseen, type Patience } from './pulse.ts';
import { Socket, type Output } from './socket.ts';

export interface TerminalHooks extends Output {
  connection?(state: Connection): void; // it has another phase, or waits, or has ended
  message?(message: ServerMessage, before: Control): void; // after it has taken effect
  changed?(): void; // after a message: anything that can be asked for
  dropped?(bytes: number, reason: string): void; // typed, and refused for good
  withdrawn?(bytes: number): void; // typed and not sent: control has changed meanwhile
  seen?(): boolean; // somebody looks at this terminal, and wants to hear of an outage at once
}

// An Obstacle is why there is no use in typing.
export type Obstacle = 'ended' | 'no_connection' | 'agent_running' | 'not_controller';

// A Refusal is why input was not taken. full: as much waits as may.
export type Refusal = Obstacle | 'full';

// What the relay tells of a terminal besides control and output.
export interface Facts {
  recording: string; // id of the recording that runs, '' where none does
  shared: string; // to whose programs the terminal is open
  held: boolean; // the echo of what was typed waits: it may be the beginning of a secret
}

const noFacts: Facts = { recording: '', shared: closedToOthers, held: false };

export interface TerminalOptions {
  followsSize?: boolean; // never give the terminal the size of this window
}

export class Terminal {
  readonly #socket: Socket;
  #control: Control;
  #facts = noFacts;
  #leads = true; // of its controller's windows, this one gives the size
  #forget: (() => void) | undefined; // about renewed grants

  constructor(
    private readonly session: Session,
    readonly id: string,
    you: Person,
    private readonly hooks: TerminalHooks,
    { followsSize = false }: TerminalOptions = {},
  ) {
    this.#control = nobody(you.id, you.name);
    this.#socket = new Socket(session, { id, followsSize }, hooks, {
      changed: (state) => hooks.connection?.(state),
      message: (message) => this.#message(message),
      dropped: (bytes, reason) => hooks.dropped?.(bytes, reason),
      patience: () => this.#patience(),
    });
  }

  get connection(): Connection {
    return this.#socket.state;
  }

  get control(): Control {
    return this.#control;
  }

  get facts(): Facts {
    return this.#facts;
  }

  // live says that what is sent now reaches the sandbox.
  get live(): boolean {
    return this.#socket.live;
  }

  // mine says that this person has control, and no agent is at work.
  get mine(): boolean {
    return controls(this.#control) && !atWork(this.#control);
  }

  // leads says that this window gives the terminal its size.
  get leads(): boolean {
    return this.mine && this.#leads;
  }

  // pending is how many bytes were typed and are not acknowledged.
  get pending(): number {
    return this.#socket.pending;
  }

  // progress is how much waits to be sent, and which part of it has left.
  get progress(): { waiting: number; done: number } {
    return this.#socket.progress;
  }

  // start connects, and goes on connecting until stop is called or there is no
  // use in it.
  start(): void {
    this.#forget ??= this.session.onRenewed((grant) => this.#socket.send({ type: 'reauth', grant }));
    this.#socket.start();
  }

  stop(): void {
    this.#forget?.();
    this.#forget = undefined;
    this.#socket.stop();
  }

  // retry: the person wants another attempt now.
  retry(): void {
    this.#socket.retry();
  }

  // online: the network has changed.
  online(): void {
    this.#socket.online();
  }

  // look: somebody looks at the terminal from now on, or does no longer.
  look(): void {
    this.#socket.look();
  }

  // send drops the message where there is no connection: by the time there is one,
  // the person may want something else.
  send(message: ClientMessage): void {
    this.#socket.send(message);
  }

  // attend: somebody is at this window, which may give the size from now on.
  attend(): void {
    if (this.mine && !this.#leads && this.live) this.send({ type: 'lead' });
  }

  // obstacle is why there is no use in typing, null where there is some. Without
  // a connection there is: keys are kept, and sent if control hasn't changed by
  // then.
  get obstacle(): Obstacle | null {
    const { phase, everAttached } = this.connection;
    if (hasEnded(this.connection)) return 'ended';
    if (phase.name === 'over' || !everAttached) return 'no_connection';
    if (this.#control.canControl && atWork(this.#control)) return 'agent_running';
    return terms(this.#control).length > 0 ? null : 'not_controller';
  }

  // type takes input to send it now, or as soon as that is possible, or says why it
  // takes none of it.
  type(data: Uint8Array): Refusal | null {
    const { obstacle } = this;
    if (obstacle !== null) return obstacle;
    return this.#socket.input(data, terms(this.#control)[0] ?? this.#control.term) ? null : 'full';
  }

  // interrupt drops input that hasn't left, so that an interrupt key doesn't stand
  // in line behind it, and returns how many bytes that were.
  interrupt(): number {
    return this.#socket.interrupt();
  }

  // discard drops input that hasn't left, and returns how many bytes that were.
  discard(): number {
    return this.#socket.retain([]);
  }

  #message(message: ServerMessage): void {
    if (message.type === 'pong') return;
    const before = this.#control;
    this.#control = update(before, message, this.session.platform.clock.date());
    this.#learn(message);
    if (message.type === 'input_refused' && !momentary(message.reason)) this.#spoiled(message.reason);
    const withdrawn = this.#keepTerm();
    this.hooks.message?.(message, before);
    if (withdrawn > 0) this.hooks.withdrawn?.(withdrawn);
    this.hooks.changed?.();
  }

  #learn(message: ServerMessage): void {
    switch (message.type) {
      case 'recording':
        this.#facts = { ...this.#facts, recording: message.id };
        break;
      case 'shared':
        this.#facts = { ...this.#facts, shared: message.with };
        break;
      case 'output_held':
        this.#facts = { ...this.#facts, held: message.held };
        break;
      case 'attached': // all of it is said anew
        this.#facts = noFacts;
        this.#leads = true; // until the relay says otherwise
        break;
      case 'leading':
        this.#leads = message.leads;
    }
    if (!controls(this.#control)) this.#leads = true; // as whoever gets control takes for granted
  }

  // spoiled: some input was lost, so the input that waits behind it is dropped.
  // A person who types while an agent works sees only that notice.
  #spoiled(reason: string): void {
    const rest = this.#socket.retain([]);
    if (rest > 0 && reason !== 'agent_running') this.hooks.dropped?.(rest, reason);
  }

  // keepTerm drops what was typed under an earlier term and not sent, before a hook
  // can type more, and returns how many bytes that were.
  #keepTerm(): number {
    return this.#control.known ? this.#socket.retain(terms(this.#control)) : 0;
  }

  #patience(): Patience {
    const { others } = this.session.origins;
    if (this.hooks.seen?.() === true) return others ? seen : alone;
    return this.mine && others ? unseen : idle;
  }
}
