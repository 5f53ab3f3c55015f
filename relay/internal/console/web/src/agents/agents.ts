// The coding agents that can be started in a terminal, what they are called, and
// what is said about a turn that one of them has finished. Pure.

import type { Turn } from '@fairlead/core';
import { visible } from '../ui/visible.ts';

// An AgentView is what is shown of a terminal's agent.
export interface AgentView {
  state: 'running' | 'waiting' | 'paused' | 'stopped';
  name: string; // as text begins
  text: string; // empty: there never was one
  detail: string;
  start: boolean;
  pause: boolean;
  resume: boolean;
  stop: boolean;
  details: boolean; // there is more to say
}

export interface KnownAgent {
  name: string; // as in agent.start
  label: string;
}

export const knownAgents: readonly KnownAgent[] = [
  { name: 'claude', label: 'Claude' },
  { name: 'codex', label: 'Codex' },
  { name: 'gemini', label: 'Gemini' },
  { name: 'opencode', label: 'OpenCode' },
  { name: 'droid', label: 'Droid' },
  { name: 'openclaw', label: 'OpenClaw' },
];

// agentLabel is what people call an agent; "claude-code" is Claude too.
export function agentLabel(name: string): string {
  return knownAgents.find((agent) => agent.name === name || name.startsWith(`${agent.name}-`))?.label ?? (name || 'The agent');
}

// turnText says in a few words how a turn ended.
export function turnText({ agent, reason }: Turn): string {
  const label = agentLabel(agent);
  switch (reason) {
    case 'interrupted':
      return `${label} was interrupted`;
    case 'error':
      return `${label} could not go on`;
    default:
      return `${label} has finished its turn`;
  }
}

// callText calls somebody who looks elsewhere.
export function callText(turn: Turn): string {
  const over = turn.reason === 'interrupted' || turn.reason === 'error';
  return over ? turnText(turn) : `${agentLabel(turn.agent)} is waiting for you`;
}

// messageText is what an agent said, with what would be invisible spelled out.
export function messageText({ lastMessage }: Turn): string {
  return lastMessage.replace(/\r\n?/g, '\n').split('\n').map((line) => visible(line.replaceAll('\t', '    '))).join('\n').trim();
}

// installOf is the command that a refusal to start an agent advises, which the
// terminal's own user can carry out.
export function installOf(refusal: string): string | undefined {
  return / this installs it for this terminal: (.+)$/.exec(refusal)?.[1];
}

// programOf is the name of the program that a command begins with.
export function programOf(command: string | undefined): string {
  const first = command?.trim().split(/\s+/)[0] ?? '';
  return first.slice(first.lastIndexOf('/') + 1).replace(/^-/, '').slice(0, 24);
}
