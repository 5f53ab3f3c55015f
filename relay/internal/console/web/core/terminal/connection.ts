// The connection to one terminal, as a state machine: what to do when an attempt
// succeeds, fails or is over for good, and which byte comes next. Pure: it knows no
// clock, no socket and no timer; socket.ts carries out its effects.

import { backoff, capMs } from '../backoff.ts';
import type { Attached, Closed, LogPart, Resync, ServerMessage } from '../protocol.ts';

// Why a connection is over for good.
export type Why = 'ended' | 'missing' | 'forbidden' | 'unauthenticated';

export type Phase =
  | { name: 'idle' }
  | { name: 'preparing' } // asking for a grant and a ticket
  | { name: 'opening'; url: string } // the socket, until it is attached
  | { name: 'attached'; at: number; url: string }
  | { name: 'lost'; retryAt: number }
  | { name: 'over'; why: Why };

export interface Connection {
  phase: Phase;
  failures: number; // attempts in a row that didn't last
  lostAt: number | null; // when the outage began that isn't over
  regranted: boolean; // one new grant was requested after a 4401
  everAttached: boolean;
  waiting: string | null; // what the relay waits for
  position: { epoch: string; offset: number } | null; // of the next byte
  keyframe: boolean; // the next binary frame is a keyframe, which counts no bytes
  exit: Closed | null;
}

export type Event =
  | { type: 'start' }
  | { type: 'prepared'; url: string; ticket: string }
  | { type: 'refused'; status: number } // the REST answer; 0: none
  | { type: 'opened' }
  | { type: 'frame'; message: ServerMessage }
  | { type: 'bytes'; length: number }
  | { type: 'closed'; code: number }
  | { type: 'timer' }
  | { type: 'retry' } // the person asks for it
  | { type: 'online' } // the network has changed
  | { type: 'silent' } // the relay doesn't answer any more
  | { type: 'stop' };

export type Effect =
  | { type: 'prepare'; freshGrant: boolean }
  | { type: 'open'; url: string; ticket: string }
  | { type: 'hang-up' }
  | { type: 'timer'; ms: number } // replaces the timer that runs
  | { type: 'no-timer' }
  | { type: 'elsewhere'; url: string } // the socket's relay can't help: try another
  | { type: 'silent'; url: string } // the socket's relay stands still: try another, and don't come back soon
  | { type: 'moved'; origin: string }
  | { type: 'clear' } // what follows doesn't continue the screen
  | { type: 'unseen'; part: LogPart; skipped: boolean } // output that the screen doesn't have
  | { type: 'head'; offset: number } // bytes before it are history
  | { type: 'resize'; cols: number; rows: number }
  | { type: 'begin'; offset: number; continues: boolean } // acknowledge from here on
  | { type: 'write'; offset: number | null }; // the bytes of the event; null: a keyframe

export interface Moment {
  now: number; // milliseconds
  random: number; // [0, 1)
}

// An attempt counts as a success when it has lasted this long.
export const stableMs = capMs;
// How long the socket may take until it is attached or says what it waits for.
export const openMs = 10_000;

export function initial(): Connection {
  return {
    phase: { name: 'idle' },
    failures: 0,
    lostAt: null,
    regranted: false,
    everAttached: false,
    waiting: null,
    position: null,
    keyframe: false,
    exit: null,
  };
}

// hasEnded reports whether the terminal's program is over.
export function hasEnded(c: Connection): boolean {
  return c.exit !== null || (c.phase.name === 'over' && c.phase.why === 'ended');
}

// barred reports whether the person may not see the terminal any more, though it
// may go on.
export function barred(c: Connection): boolean {
  return c.phase.name === 'over' && !hasEnded(c);
}

type Step = [Connection, Effect[]];

export function step(c: Connection, e: Event, at: Moment): Step {
  if (e.type === 'stop') return [{ ...c, phase: { name: 'idle' } }, [{ type: 'no-timer' }, { type: 'hang-up' }]];
  switch (c.phase.name) {
    case 'idle':
      return e.type === 'start' ? prepare(c, false) : [c, []];
    case 'preparing':
      if (e.type === 'prepared') return open(c, e.url, e.ticket);
      return e.type === 'refused' ? refused(c, e.status, at) : [c, []];
    case 'opening':
    case 'attached':
      return connected(c, e, at);
    case 'lost':
      return e.type === 'timer' || e.type === 'retry' || e.type === 'online' ? prepare(c, false) : [c, []];
    case 'over':
      if (e.type !== 'retry' || c.phase.why === 'ended') return [c, []];
      return prepare({ ...c, failures: 0, regranted: false }, true);
  }
}

function prepare(c: Connection, freshGrant: boolean): Step {
  return [{ ...c, phase: { name: 'preparing' } }, [{ type: 'no-timer' }, { type: 'prepare', freshGrant }]];
}

function open(c: Connection, url: string, ticket: string): Step {
  const where = c.position === null ? url : withSince(url, c.position.epoch, c.position.offset);
  return [
    { ...c, phase: { name: 'opening', url }, waiting: null, keyframe: false },
    [{ type: 'timer', ms: openMs }, { type: 'open', url: where, ticket }],
  ];
}

function withSince(url: string, epoch: string, offset: number): string {
  const to = new URL(url);
  to.searchParams.set('since', `${epoch}:${offset}`);
  return to.href;
}

function connected(c: Connection, e: Event, at: Moment): Step {
  switch (e.type) {
    case 'frame':
      return frame(c, e.message, at);
    case 'bytes':
      return bytes(c, e.length);
    case 'closed':
      return closed(c, e.code, at);
    case 'timer': // not attached in time
      return c.phase.name === 'opening' && c.waiting === null ? hangUp(lose(c, at)) : [c, []];
    case 'silent': {
      const [next, effects] = prepare({ ...c, lostAt: c.lostAt ?? at.now, waiting: null }, false);
      return hangUp([next, [{ type: 'silent', url: urlOf(c) }, ...effects]]);
    }
    case 'retry':
    case 'online':
      return hangUp(prepare({ ...c, lostAt: c.lostAt ?? at.now }, false));
    default:
      return [c, []];
  }
}

// urlOf is the address of the present socket.
function urlOf({ phase }: Connection): string {
  return phase.name === 'opening' || phase.name === 'attached' ? phase.url : '';
}

function hangUp([c, effects]: Step): Step {
  return [c, [{ type: 'hang-up' }, ...effects]];
}

function frame(c: Connection, m: ServerMessage, at: Moment): Step {
  switch (m.type) {
    case 'attached': {
      const continues = m.mode === 'resume' && c.position?.epoch === m.epoch && c.position.offset === m.offset;
      const next: Connection = { ...c, phase: { name: 'attached', at: at.now, url: urlOf(c) }, lostAt: null, everAttached: true };
      return place(next, m, continues, [{ type: 'no-timer' }]);
    }
    case 'resync':
      return place(c, m, false, []);
    case 'moved': // a close with 1012 follows
      return [c, [{ type: 'moved', origin: m.origin }]];
    case 'resized':
      return [{ ...c, waiting: null }, [{ type: 'resize', cols: m.cols, rows: m.rows }]];
    case 'waiting':
      return [{ ...c, waiting: m.reason }, []];
    case 'control_state': // sent again when the sandbox is back
      return [{ ...c, waiting: null }, []];
    case 'pty_closed':
      return [{ ...c, exit: m, waiting: null }, []];
    default:
      return [c, []];
  }
}

// place moves to where an attached or resync says that the bytes go on.
function place(c: Connection, m: Attached | Resync, continues: boolean, effects: Effect[]): Step {
  const keyframe = m.keyframe_bytes > 0;
  if (!continues) effects.push(...unseen(c.position, m));
  if (!continues && !keyframe) effects.push({ type: 'clear' }); // a keyframe does it itself
  effects.push(
    { type: 'resize', cols: m.cols, rows: m.rows },
    { type: 'head', offset: m.head },
    { type: 'begin', offset: m.offset, continues },
  );
  return [{ ...c, position: { epoch: m.epoch, offset: m.offset }, keyframe, waiting: null }, effects];
}

// unseen tells what is before the bytes that follow: output that was skipped,
// or, for a newcomer, what has scrolled away.
function unseen(position: Connection['position'], { epoch, offset }: Attached | Resync): Effect[] {
  if (position?.epoch !== epoch) return [{ type: 'unseen', part: { epoch, from: 0, to: offset }, skipped: false }];
  if (position.offset >= offset) return [];
  return [{ type: 'unseen', part: { epoch, from: position.offset, to: offset }, skipped: true }];
}

function bytes(c: Connection, length: number): Step {
  if (c.position === null) return [c, []]; // before attached: nothing we could place
  if (c.keyframe) return [{ ...c, keyframe: false, waiting: null }, [{ type: 'write', offset: null }]];
  const { epoch, offset } = c.position;
  return [
    { ...c, position: { epoch, offset: offset + length }, waiting: null },
    [{ type: 'write', offset }],
  ];
}

function closed(c: Connection, code: number, at: Moment): Step {
  const stable = c.phase.name === 'attached' && at.now - c.phase.at >= stableMs;
  const then = stable ? { ...c, failures: 0, regranted: false } : c;
  switch (code) {
    case 4004:
      return over(then, 'ended');
    case 4401:
      return unauthenticated(then);
    case 4403:
      return over(then, 'forbidden');
    case 4404:
      return over(then, 'missing');
    default:
      return then.exit === null ? lose(then, at) : over(then, 'ended');
  }
}

function refused(c: Connection, status: number, at: Moment): Step {
  switch (status) {
    case 401:
      return unauthenticated(c);
    case 403:
      return over(c, 'forbidden');
    case 404:
      return over(c, 'missing');
    case 410:
      return over(c, 'ended');
    default:
      return lose(c, at);
  }
}

// unauthenticated tries once with a new grant: the old one may just have run
// out while the machine was asleep.
function unauthenticated(c: Connection): Step {
  return c.regranted ? over(c, 'unauthenticated') : prepare({ ...c, regranted: true }, true);
}

function over(c: Connection, why: Why): Step {
  return [{ ...c, phase: { name: 'over', why }, waiting: null }, [{ type: 'no-timer' }]];
}

function lose(c: Connection, at: Moment): Step {
  const ms = backoff(c.failures, at.random);
  const phase: Phase = { name: 'lost', retryAt: at.now + ms };
  const effects: Effect[] = [{ type: 'timer', ms }];
  if (c.phase.name === 'opening') effects.push({ type: 'elsewhere', url: c.phase.url });
  return [{ ...c, phase, failures: c.failures + 1, lostAt: c.lostAt ?? at.now, waiting: null }, effects];
}
