// The coding agents that can be started in a terminal, and what they are called.

// What the relay calls the holder of control while an agent has it.
export const agentHolder = 'agent';

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

// agentLabel is what people call an agent.
export function agentLabel(name: string): string {
  return knownAgents.find((agent) => agent.name === name)?.label ?? (name || 'The agent');
}

// programOf is the name of the program that a command begins with.
export function programOf(command: string | undefined): string {
  const first = command?.trim().split(/\s+/)[0] ?? '';
  return first.slice(first.lastIndexOf('/') + 1).replace(/^-/, '').slice(0, 24);
}
