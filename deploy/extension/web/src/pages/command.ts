// What a signed command says, steps 8 to 14 of protocol/jws: the same verdict as
// Go's on every payload. A test compares them. Pure.

import { foldName, integerOf, type Members, readObject, stringOf } from './json.ts';
import { auth, malformed, Refusal } from './refusal.ts';

export const skewMs = 60_000;
const longestTTLMs = 600_000;

export interface Target {
  sandboxId: string;
  sessionId: string;
  ptyId: string;
  extensionId: string;
  browserId: string;
  tabId: number; // 0 where there is none
}

export interface Command {
  commandId: string;
  traceId: string;
  issuedAt: number; // Unix milliseconds
  ttlMs: number;
  target: Target;
  op: Members;
  reply: { url: string; callbackToken: string } | undefined;
}

// The members that each object may have.
const names = {
  command: ['iss', 'aud', 'commandId', 'traceId', 'issuedAt', 'ttlMs', 'target', 'op', 'reply', 'grantId', 'userId'],
  target: ['sandboxId', 'sessionId', 'ptyId', 'extensionId', 'browserId', 'tabId'],
  reply: ['url', 'callbackToken'],
  op: ['kind', 'method', 'params'],
};

// open reads the payload of a verified token.
export function open(typ: string, payload: string): Command {
  if (typ !== '' && typ !== 'command+jws') throw auth('typ must be command+jws');
  const command = readObject(payload);
  if (command === undefined) throw auth('the payload is not one JSON object with distinct members');
  const inner = { target: objectIn(command, 'target'), reply: objectIn(command, 'reply'), op: objectIn(command, 'op') };
  for (const [members, known] of [[command, names.command], [inner.target, names.target], [inner.reply, names.reply], [inner.op, names.op]] as const) {
    if (hasOtherCase(members, known)) throw auth('a member of the payload differs from a known one only in case');
  }
  if (stringOf(command.get('iss')) !== 'control-server') throw auth('iss must be control-server');
  if (stringOf(command.get('aud')) !== 'browser-extension') throw auth('the command was made for another audience');
  for (const [members, known] of [[command, names.command], [inner.target, names.target], [inner.reply, names.reply]] as const) {
    for (const name of members?.keys() ?? []) if (!known.includes(name)) throw malformed('the command has a member of no meaning here');
  }
  return read(command, inner);
}

// timely throws when it is too early or too late for a command.
export function timely(c: Command, now: number): void {
  if (c.issuedAt > now + skewMs) throw auth('the command was issued in the future');
  if (now > lastMoment(c)) throw new Refusal('ExpiredError', 'the command has expired');
}

// lastMoment is until when a command may run, by a clock that is off.
export const lastMoment = (c: Pick<Command, 'issuedAt' | 'ttlMs'>): number => c.issuedAt + c.ttlMs + skewMs;

function read(command: Members, inner: Record<'target' | 'reply' | 'op', Members | undefined>): Command {
  const t = (name: string): string => id(inner.target, name, true);
  const target: Target = {
    sandboxId: t('sandboxId'), sessionId: t('sessionId'), ptyId: t('ptyId'), extensionId: t('extensionId'), browserId: t('browserId'),
    tabId: integer(inner.target, 'tabId'),
  };
  const issuedAt = integer(command, 'issuedAt');
  const ttlMs = integer(command, 'ttlMs');
  if (!absent(command, 'target') && inner.target === undefined) throw malformed('target must be an object');
  if (!absent(command, 'reply') && inner.reply === undefined) throw malformed('reply must be an object');
  const reply = inner.reply === undefined ? undefined : { url: string(inner.reply, 'url'), callbackToken: string(inner.reply, 'callbackToken') };
  id(command, 'grantId', true);
  id(command, 'userId', true);
  if ((stringOf(inner.op?.get('kind')) ?? '') === '') throw malformed('op must be an object with a kind');
  if (ttlMs <= 0 || ttlMs > longestTTLMs) throw malformed(`ttlMs must be from 1 to ${longestTTLMs}`);
  return { commandId: id(command, 'commandId', false), traceId: id(command, 'traceId', false), issuedAt, ttlMs, target, op: inner.op ?? new Map(), reply };
}

// absent members are those that Go leaves empty.
const absent = (members: Members | undefined, name: string): boolean => (members?.get(name) ?? 'null') === 'null';

const objectIn = (members: Members, name: string): Members | undefined => (absent(members, name) ? undefined : readObject(members.get(name) ?? ''));

const hasOtherCase = (members: Members | undefined, known: readonly string[]): boolean =>
  [...(members?.keys() ?? [])].some((name) => !known.includes(name) && known.some((ours) => foldName(ours) === foldName(name)));

function string(members: Members | undefined, name: string): string {
  if (absent(members, name)) return '';
  const value = stringOf(members?.get(name));
  if (value === undefined) throw malformed('a member of the command has the wrong type');
  return value;
}

function integer(members: Members | undefined, name: string): number {
  if (absent(members, name)) return 0;
  const value = integerOf(members?.get(name));
  if (value === undefined) throw malformed('a member of the command has the wrong type');
  return value;
}

// validID is protocol.ValidID.
export const validID = (text: string): boolean => /^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$/.test(text);

function id(members: Members | undefined, name: string, optional: boolean): string {
  const value = string(members, name);
  if (!(optional && value === '') && !validID(value)) throw malformed('the command has something else where an id belongs');
  return value;
}
