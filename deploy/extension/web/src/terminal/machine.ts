// What the panel's terminal does next: a function of how it stands and what has
// happened. It asks for nothing and waits for nothing by itself. Pure.
//
// Nothing runs until the person presses a key. A connection that is lost is taken
// up again for as long as the sandbox keeps the terminal, and never begun anew
// behind the person's back: that would be another conversation.

// How long the relay keeps a terminal whose panel is gone.
export const keptMs = 60_000;
const pauses = [0, 1_000, 2_000, 4_000, 8_000];

export type State =
  | { name: 'idle'; note: string }
  | { name: 'starting' }
  | { name: 'live'; session: string }
  | { name: 'lost'; session: string; tries: number; since: number }
  | { name: 'ended'; note: string }
  | { name: 'absent' }; // the sandbox has no claude

export type Happening =
  | { is: 'start' } // a key, or the button
  | { is: 'found'; session: string } // before the page was loaded anew
  | { is: 'minted'; session: string; token: string }
  | { is: 'available'; available: boolean }
  | { is: 'refused'; reason: string; again: boolean }
  | { is: 'open' }
  | { is: 'message'; message: Record<string, unknown> }
  | { is: 'closed'; code: number }
  | { is: 'due' } // the pause is over
  | { is: 'online' }; // there is a network again

export type Effect =
  | { do: 'mint' }
  | { do: 'ask' } // whether there is a claude
  | { do: 'open'; token: string }
  | { do: 'begin' } // the program, at the screen's size
  | { do: 'resize' }
  | { do: 'reset' } // the screen: all of it comes again
  | { do: 'reattach'; session: string }
  | { do: 'pause'; ms: number }
  | { do: 'keep'; session: string } // for the page's next load
  | { do: 'forget' }
  | { do: 'answer'; message: Record<string, unknown> }
  | { do: 'leave' }; // the socket

// A Machine is a state, and what isn't shown: what a start still waits for.
export interface Machine {
  state: State;
  ticket?: { session: string; token: string };
}

type Next = [Machine, Effect[]];

export const idle: Machine = { state: { name: 'idle', note: '' } };

const codes = { ended: 1000, restarted: 4001, absent: 4404 };

export function step(machine: Machine, happening: Happening, now: number): Next {
  switch (machine.state.name) {
    case 'idle':
    case 'ended':
    case 'absent':
      return resting(machine, happening, now);
    case 'starting':
      return starting(machine, happening);
    case 'live':
      return live(machine, machine.state, happening, now);
    case 'lost':
      return lost(machine, machine.state, happening, now);
  }
}

function resting(machine: Machine, happening: Happening, now: number): Next {
  if (happening.is === 'start') return [{ state: { name: 'starting' } }, [{ do: 'mint' }]];
  if (happening.is === 'found') return again(happening.session, 0, now);
  return [machine, []];
}

function starting(machine: Machine, happening: Happening): Next {
  const { ticket } = machine;
  switch (happening.is) {
    case 'minted':
      return [{ ...machine, ticket: { session: happening.session, token: happening.token } }, [{ do: 'ask' }]];
    case 'available':
      if (ticket === undefined) return [machine, []];
      return happening.available ? [machine, [{ do: 'open', token: ticket.token }]] : [{ state: { name: 'absent' } }, []];
    case 'refused':
      return [{ state: { name: 'idle', note: `Cannot start: ${happening.reason}` } }, [{ do: 'leave' }]];
    case 'open':
      if (ticket === undefined) return [machine, []];
      return [{ state: { name: 'live', session: ticket.session } }, [...(ticket.session === '' ? [] : [{ do: 'keep', session: ticket.session } as const]), { do: 'reset' }, { do: 'begin' }]];
    case 'closed':
      return [{ state: { name: 'idle', note: 'Cannot start: the relay does not answer.' } }, []];
    default:
      return [machine, []];
  }
}

function live(machine: Machine, state: State & { name: 'live' }, happening: Happening, now: number): Next {
  if (happening.is === 'message') return [machine, told(happening.message)];
  if (happening.is !== 'closed') return [machine, []];
  return closed(happening.code) ?? (state.session === '' ? end('The connection was lost.') : again(state.session, 0, now));
}

function lost(machine: Machine, state: State & { name: 'lost' }, happening: Happening, now: number): Next {
  const { session, tries, since } = state;
  switch (happening.is) {
    case 'due':
      return now - since > keptMs ? end('The connection was lost for too long.') : [machine, [{ do: 'reattach', session }]];
    case 'minted':
      return [{ ...machine, ticket: { session: happening.session === '' ? session : happening.session, token: happening.token } }, [{ do: 'open', token: happening.token }]];
    case 'open':
      return [{ state: { name: 'live', session: machine.ticket?.session ?? session } }, [{ do: 'resize' }]];
    case 'refused':
      return happening.again ? again(session, tries + 1, since) : end('Its time was over before the connection came back.');
    case 'closed':
      return closed(happening.code) ?? again(session, tries + 1, since);
    case 'online':
      return again(session, 0, since);
    case 'start': // the person doesn't want to wait
      return [{ state: { name: 'starting' } }, [{ do: 'leave' }, { do: 'forget' }, { do: 'mint' }]];
    default:
      return [machine, []];
  }
}

// again takes up what was lost at since, after a pause that grows.
function again(session: string, tries: number, since: number): Next {
  return [{ state: { name: 'lost', session, tries, since } }, [{ do: 'leave' }, { do: 'pause', ms: pauses[Math.min(tries, pauses.length - 1)] ?? 0 }]];
}

const end = (note: string): Next => [{ state: { name: 'ended', note } }, [{ do: 'leave' }, { do: 'forget' }]];

// closed is what a close code says for good.
function closed(code: number): Next | undefined {
  if (code === codes.ended) return end('Claude has ended.');
  if (code === codes.restarted) return end('It was started anew elsewhere.');
  if (code === codes.absent) return [{ state: { name: 'absent' } }, [{ do: 'forget' }]];
  return undefined;
}

// told is what a text frame asks for. One that isn't known is a later relay's.
function told(message: Record<string, unknown>): Effect[] {
  if (message.type === 'ping') return [{ do: 'answer', message: { type: 'pong', ts: message.ts } }];
  if (message.type === 'reattach-begin') return [{ do: 'reset' }];
  return [];
}
