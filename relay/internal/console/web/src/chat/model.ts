// What the chat's panel shows: one conversation, and how its person stands. Pure.

import type { ChatControl, ChatPresence, Conversation, Item, Outgoing, Reach } from '@fairlead/core';

// A Talk is a conversation as the list has it.
export interface Talk {
  id: string;
  provider: string;
  title: string;
  lastActivity: string; // ISO 8601
  running: boolean;
}

export interface ChatModel {
  talk: Talk | undefined;
  conversation: Conversation;
  control: ChatControl | undefined;
  presence: ChatPresence | undefined;
  reach: Reach;
  waiting: readonly Outgoing[]; // of this conversation
  queued: readonly Outgoing[]; // that wait for their turn
  mayTalk: boolean;
  mayApprove: boolean;
  you: string;
  terminal: string; // where the conversation goes on; '': here
}

export const none: Omit<ChatModel, 'mayTalk' | 'mayApprove' | 'you'> = {
  talk: undefined, conversation: { items: [], mark: 0, running: false, missing: false }, control: undefined, presence: undefined, reach: 'connecting', waiting: [], queued: [], terminal: '',
};

// mine reports whether the person's next message would be taken.
export function mine(m: ChatModel): boolean {
  const controller = m.control?.controller ?? '';
  return controller === '' || controller === m.you;
}

// mayStop reports whether the person may end the present run: it is who writes.
export const mayStop = (m: ChatModel): boolean => m.mayTalk && m.conversation.running && mine(m);

export type Send = 'send' | 'queue' | 'ask' | 'asked' | 'none';

// sendOf says what the button beside the text does.
export function sendOf(m: ChatModel): Send {
  if (!m.mayTalk || m.talk === undefined) return 'none';
  if (!mine(m) && m.reach === 'lost') return 'none';
  if (!mine(m)) return m.control?.requests.includes(m.you) === true ? 'asked' : 'ask';
  if (m.terminal !== '') return 'none';
  return m.conversation.running ? 'queue' : 'send';
}

// goesOn says whether the person can have the conversation go on in a terminal,
// and why not; where it does, it is 'there', and where nobody would ask, 'none'.
export function goesOn(m: ChatModel, may: boolean): { state: 'can' | 'not' | 'there' | 'none'; why: string } {
  if (m.terminal !== '') return { state: 'there', why: '' };
  if (!may || !m.mayTalk || !m.mayApprove || !m.conversation.items.some(({ kind }) => kind === 'said')) return { state: 'none', why: '' };
  const not = (why: string) => ({ state: 'not' as const, why });
  if (m.reach !== 'open') return not('There is no connection');
  if (!mine(m)) return not('Somebody else is writing here');
  if (m.conversation.running) return not('The coding agent is working: stop it first');
  return { state: 'can', why: 'Go on with this conversation in the coding agent’s own program. Nothing can be sent here until you come back' };
}

// noteOf is what stands above the text: why it isn't the person's, or what is
// wrong.
export function noteOf(m: ChatModel, name: (id: string) => string): string {
  if (m.reach === 'refused') return 'This conversation can’t be followed any more.';
  if (m.reach === 'lost') return mine(m) && m.mayTalk ? 'Not connected. What you send waits.' : 'Not connected.';
  if (m.talk !== undefined && !m.mayTalk) return 'You may only watch.';
  if (m.talk !== undefined && !mine(m)) return `${name(m.control?.controller ?? '')} is writing here.`;
  const asking = m.control?.requests.filter((id) => id !== m.you) ?? [];
  if (asking.length > 0 && m.control?.controller === m.you) return `${asking.map(name).join(', ')} would like to write.`;
  return '';
}

// leftOf is the time that is left to answer a question, in seconds; undefined: as
// long as it takes.
export function leftOf(item: Extract<Item, { kind: 'asked' }>, now: number): number | undefined {
  if (item.expiresAt === undefined) return undefined;
  const at = Date.parse(item.expiresAt);
  return Number.isNaN(at) ? undefined : Math.max(0, Math.round((at - now) / 1_000));
}

// whyWaits says why a message has not been sent yet.
export function whyWaits(m: ChatModel, name: (id: string) => string): string {
  if (m.reach !== 'open') return 'Waits for the connection';
  if (!mine(m)) return `Waits while ${name(m.control?.controller ?? '')} writes here`;
  if (m.terminal !== '') return 'Waits until the conversation is back from its terminal';
  return m.conversation.running ? 'Waits until the present turn is over' : 'Waits for its turn';
}

// answered says what became of a question.
export function answered(item: Extract<Item, { kind: 'asked' }>, you: string, name: (id: string) => string): string {
  if (item.state !== 'decided') return { open: '', timeout: 'Nobody answered in time', cancelled: 'Withdrawn' }[item.state];
  if (item.answer === undefined) return 'Answered';
  const { by, decision } = item.answer;
  const who = by === you ? 'You' : name(by);
  if (item.tool === 'AskUserQuestion') return decision.startsWith('allow') ? `${who} answered` : `${who} didn’t answer`;
  return `${who} ${decision.startsWith('allow') ? 'allowed' : 'denied'} it${decision.endsWith('_always') ? ', for this session' : ''}`;
}

// newsOf is what a screen reader is told of a question, in words of its own: the
// conversation is read out only when a turn is over.
export function newsOf(item: Extract<Item, { kind: 'asked' }>, title: string, mayApprove: boolean): string {
  if (mayApprove && item.tool !== 'AskUserQuestion') return ''; // it is said of every approval
  return `${title} ${mayApprove ? 'F6 leads to the answers.' : 'Somebody who may approve has to answer.'}`;
}
