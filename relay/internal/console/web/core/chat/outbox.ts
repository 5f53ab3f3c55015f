// Messages that people have sent and the sandbox hasn't confirmed. Each has a name
// of its own, under which it is sent again on every new socket; the sandbox begins
// one run for a name. Pure.

import type { ChatFrame, Image } from './events.ts';

// What a message asks of the coding agent.
export interface ChatOptions {
  model?: string;
  permissionMode?: string;
}

export interface Outgoing {
  readonly name: string; // clientMessageId
  readonly conversation: string;
  readonly content: string;
  readonly images: readonly Image[];
  readonly options: ChatOptions;
  readonly refused?: string; // why the sandbox didn't take it
}

// frameOf is the message as the socket takes it.
export function frameOf(m: Outgoing): object {
  return {
    type: 'chat.send', sessionId: m.conversation, content: m.content, clientMessageId: m.name,
    options: { ...m.options, ...(m.images.length === 0 ? {} : { images: m.images }) },
  };
}

// A socket takes frames of so many bytes.
export const mostFrameBytes = 1 << 20;

// fits reports whether a message is short enough for a socket.
export const fits = (m: Outgoing): boolean => new TextEncoder().encode(JSON.stringify(frameOf(m))).length <= mostFrameBytes;

// heard removes what a frame confirms, and marks what it refuses.
export function heard(outbox: readonly Outgoing[], frame: ChatFrame): readonly Outgoing[] {
  if (frame.kind === 'text' && frame.clientMessageId !== undefined) {
    return dropped(outbox, frame.clientMessageId);
  }
  if (frame.kind !== 'protocol_error' || frame.clientMessageId === undefined) return outbox;
  const { clientMessageId: name, code, error } = frame;
  if (code === 'UNAVAILABLE' || !outbox.some((m) => m.name === name)) return outbox; // it is sent again
  return outbox.map((m) => (m.name === name ? { ...m, refused: error } : m));
}

// dropped is the outbox without one message.
export function dropped(outbox: readonly Outgoing[], name: string): readonly Outgoing[] {
  return outbox.some((m) => m.name === name) ? outbox.filter((m) => m.name !== name) : outbox;
}
