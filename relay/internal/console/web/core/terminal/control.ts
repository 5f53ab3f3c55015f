// Who has control of a terminal, who asks for it and who watches, as the relay's
// messages say. Pure.

import { freeTerm, type ServerMessage, type Turn, type Viewer } from '../protocol.ts';

// What the relay calls the holder of control while an agent has it.
export const agentHolder = 'agent';

export interface Control {
  known: boolean; // a control_state has come
  controller: string; // '' when nobody has control
  term: number; // of the controller; what is typed counts under it alone
  requests: string[];
  agentState: string; // 'running', 'waiting', 'paused' or 'stopped'
  agent: string; // name of the agent that is or was there, '' when there never was one
  lastTurn: Turn | null; // the last one that a coding agent finished
  tools: number | null; // of the terminal's programs; null: not known yet
  graceUntil: number | null; // the controller is away; control is kept for them until then
  you: string;
  canControl: boolean;
  canTakeBack: boolean; // from its holder: you own the session
  count: number; // people who watch
  viewers: Viewer[];
  names: ReadonlyMap<string, string>; // of everyone seen so far
}

export function nobody(you: string, yourName: string): Control {
  return {
    known: false,
    controller: '',
    term: 0,
    requests: [],
    agentState: 'stopped',
    agent: '',
    lastTurn: null,
    tools: null,
    graceUntil: null,
    you,
    canControl: false,
    canTakeBack: false,
    count: 0,
    viewers: [],
    names: new Map([[you, yourName]]),
  };
}

// update returns c as it is after m. now is in milliseconds.
export function update(c: Control, m: ServerMessage, now: number): Control {
  switch (m.type) {
    case 'control_state':
      return {
        ...c,
        known: true,
        controller: m.controller,
        term: m.term,
        requests: m.requests,
        agentState: m.agent_state,
        agent: m.agent ?? '',
        lastTurn: m.last_turn ?? c.lastTurn,
        graceUntil: m.grace_ms === undefined ? null : now + m.grace_ms,
        you: m.you,
        canControl: m.can_control,
        canTakeBack: m.can_take_back ?? false,
      };
    case 'control_taken':
    case 'control_granted':
      return {
        ...c,
        controller: m.controller,
        term: m.term,
        requests: c.requests.filter((id) => id !== m.controller),
        graceUntil: null,
      };
    case 'agent_state':
      return { ...c, agentState: m.agent_state, agent: m.agent };
    case 'agent_stopped':
      return { ...c, lastTurn: { agent: m.agent, lastMessage: m.lastMessage, reason: m.reason, timestamp: m.timestamp } };
    case 'tools_changed':
      return { ...c, tools: m.newCount };
    case 'control_requested':
      return { ...c, requests: m.requests };
    case 'control_revoked':
    case 'control_expired':
      return { ...c, controller: m.controller, graceUntil: null };
    case 'presence': {
      const names = new Map(c.names);
      for (const viewer of m.viewers) names.set(viewer.user_id, viewer.name);
      return { ...c, count: m.count, viewers: m.viewers, names };
    }
    default:
      return c;
  }
}

// atWork reports whether an agent has the terminal to itself. It doesn't while it
// waits for a prompt.
export const atWork = (c: Control): boolean => c.agentState === 'running' || (c.controller === agentHolder && c.agentState !== 'waiting');

export const controls = (c: Control): boolean => c.controller !== '' && c.controller === c.you;

// terms are those under which input counts: the first for input that is typed now,
// the others for input that was typed before the last message came. There are none
// where this person can't type.
export function terms(c: Control): number[] {
  if (!c.known || !c.canControl || atWork(c)) return [];
  if (controls(c)) return [c.term, freeTerm(c.term - 1)];
  return c.controller === '' ? [freeTerm(c.term)] : [];
}
