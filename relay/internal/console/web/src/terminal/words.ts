// What is said about control: who has it, what a message changed, and why typing
// had no effect. Pure.

import { agentHolder, controls, type Control, type Obstacle, type ServerMessage } from '@fairlead/core';
import { agentLabel, turnText } from '../agents/agents.ts';

// nameOf falls back to an id's last characters: presence names at most fifty.
export function nameOf(c: Control, id: string): string {
  if (id === agentHolder) return agentLabel(c.agent);
  return c.names.get(id) || `user ${id.slice(-4)}`;
}

// notice says in words what a message changed, or nothing when the person sees
// it anyway or did it themselves.
export function notice(before: Control, m: ServerMessage): string | undefined {
  const name = (id: string) => nameOf(before, id);
  const { you } = before;
  switch (m.type) {
    case 'agent_state':
      return agentNotice(before, m.agent_state, agentLabel(m.agent));
    case 'agent_stopped': // of an agent in front, agent_state says it
      return before.agentState === 'stopped' || m.reason === 'error' ? turnText(m) : undefined;
    case 'control_granted':
      if (m.from === agentHolder) return undefined; // agent_state says it
      if (m.reason !== undefined) return lostNotice(m.reason, m.from === you, m.to === you, name(m.from), name(m.to));
      if (m.to === you) return `${name(m.from)} gave you control`;
      return m.from === you ? `${name(m.to)} has control now` : `${name(m.from)} gave control to ${name(m.to)}`;
    case 'control_taken':
      return m.controller === you || m.controller === agentHolder ? undefined : `${name(m.controller)} took control`;
    case 'control_revoked':
      return m.from === you || m.from === agentHolder ? undefined : `${name(m.from)} gave control back`;
    case 'control_expired':
      return m.from === you ? 'You were away too long to keep control' : `${name(m.from)} was away; control is free`;
    case 'error':
      return m.message;
    default:
      return undefined;
  }
}

// lostNotice says that control went from one to another who wasn't handed it.
function lostNotice(reason: string, fromYou: boolean, toYou: boolean, from: string, to: string): string | undefined {
  if (reason === 'owner') {
    if (toYou) return undefined;
    return fromYou ? `${to} owns this session and took control back` : `${to} took control back from ${from}`;
  }
  if (fromYou) return `You had not typed for 30 s: ${to} asked and has control now`;
  return toYou ? `${from} had not typed for 30 s: you have control now` : `${to} has control now: ${from} had not typed for 30 s`;
}

function agentNotice(c: Control, state: string, label: string): string | undefined {
  const mine = controls(c) ? ': you can type' : '';
  if (state === 'waiting') return `${label} is waiting for ${c.canControl ? 'you' : 'a prompt'}${mine}`;
  if (state === 'running' && c.agentState === 'waiting') return undefined; // somebody has just answered it
  if (state === 'running') return `${label} is working: typing is paused`;
  return state === 'paused' ? `${label} is paused${mine}` : `${label} has ended${mine}`;
}

// dropped says that what was typed some time ago was refused for good, and what
// to do about it.
export function dropped(c: Control, bytes: number, reason: string): string {
  const what = bytes === 1 ? '1 character you typed was not sent' : `${bytes} characters you typed were not sent`;
  if (reason === 'ended') return `${what}: this terminal has ended`;
  if (reason === 'agent_running') return `${what}: ${agentLabel(c.agent)} was at work`;
  if (!c.canControl) return `${what}: your link does not allow typing`;
  if (controls(c)) return `${what}: control had changed meanwhile. Please type it again`;
  if (c.controller === '') return `${what}: you had lost control meanwhile. Take control and type it again`;
  return `${what}: ${nameOf(c, c.controller)} has control now`;
}

// refusal says why typing had no effect.
export function refusal(c: Control, reason: string): string {
  switch (reason) {
    case 'agent_running':
      return `${agentLabel(c.agent)} is working here: pause it to type`;
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

// obstacleText says why there is no use in typing.
export const obstacleText = (c: Control, obstacle: Obstacle): string => (obstacle === 'no_connection' ? 'Not sent: there is no connection' : refusal(c, obstacle));
