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
  queued: readonly Outgoing[]; // to be sent when the present run is over
  mayTalk: boolean;
  mayApprove: boolean;
  you: string;
}

export const none: Omit<ChatModel, 'mayTalk' | 'mayApprove' | 'you'> = {
  talk: undefined, conversation: { items: [], mark: 0, running: false, missing: false }, control: undefined, presence: undefined, reach: 'connecting', waiting: [], queued: [],
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
  return m.conversation.running ? 'queue' : 'send';
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

// nextOf is what may be sent now of what is queued.
export function nextOf(m: ChatModel): Outgoing | undefined {
  if (m.conversation.running || m.waiting.some(({ refused }) => refused === undefined) || !mine(m)) return undefined;
  return m.queued[0];
}
