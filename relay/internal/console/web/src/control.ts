// Who has control of a terminal, who asks for it and who watches, as the relay
// tells it. Pure.

import type { ServerMessage, Viewer } from './protocol.ts';

export interface Control {
  known: boolean; // a control_state has come
  controller: string; // '' when nobody has control
  term: number; // of the controller; what is typed counts under it alone
  requests: string[];
  graceUntil: number | null; // the controller is away; control is kept for them until then
  you: string;
  canControl: boolean;
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
    graceUntil: null,
    you,
    canControl: false,
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
        graceUntil: m.grace_ms === undefined ? null : now + m.grace_ms,
        you: m.you,
        canControl: m.can_control,
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

export const controls = (c: Control): boolean => c.controller !== '' && c.controller === c.you;

// nameOf falls back to an id's last characters: presence names at most fifty.
export function nameOf(c: Control, id: string): string {
  return c.names.get(id) || `user ${id.slice(-4)}`;
}

// notice says in words what a message changed, or nothing when the person sees
// it anyway or did it themselves.
export function notice(before: Control, m: ServerMessage): string | undefined {
  const name = (id: string) => nameOf(before, id);
  const { you } = before;
  switch (m.type) {
    case 'control_granted':
      if (m.to === you) return `${name(m.from)} gave you control`;
      return m.from === you ? `${name(m.to)} has control now` : `${name(m.from)} gave control to ${name(m.to)}`;
    case 'control_taken':
      return m.controller === you ? undefined : `${name(m.controller)} took control`;
    case 'control_revoked':
      return m.from === you ? undefined : `${name(m.from)} gave control back`;
    case 'control_expired':
      return m.from === you ? 'You were away too long to keep control' : `${name(m.from)} was away; control is free`;
    case 'error':
      return m.message;
    default:
      return undefined;
  }
}

// refusal says why typing had no effect.
export function refusal(c: Control, reason: string): string {
  switch (reason) {
    case 'agent_running':
      return 'A coding agent is at work here: typing is paused';
    case 'busy':
      return 'Too much input at once: some of it was not accepted';
    case 'ended':
      return 'This terminal has ended';
    case 'stale_term':
      return 'Not sent: control changed while you were typing';
    default:
      if (!c.canControl) return 'You are watching: your link does not allow typing';
      if (c.controller === '') return 'Take control to type';
      return controls(c) ? 'Not sent: try again' : `${nameOf(c, c.controller)} has control: request it to type`;
  }
}
