// What one conversation shows: its events, live or out of the history, folded into
// items. Pure.

import type { ChatEvent, From, Image, Pending, Question, Subscribed, TokenBudget, ToolOutput, Withdrawal } from './events.ts';

// An Item is one thing on the screen, in the order in which it happened.
export type Item =
  | Said
  | { kind: 'thought'; id: string; text: string }
  | Used
  | { kind: 'asked'; id: string; tool: string; input: unknown; revision: number; expiresAt?: string; state: AskedState; answer?: Answered }
  | { kind: 'failed'; id: string; text: string }
  | { kind: 'ended'; id: string; success: boolean; aborted: boolean; exitCode: number };

// A Said is a text of a person or of the coding agent. It is live while deltas
// may follow.
export interface Said {
  kind: 'said';
  id: string;
  role: 'user' | 'assistant';
  text: string;
  live: boolean;
  from?: From;
  images?: Image[];
  name?: string; // its sender's own name of it
  key?: string; // the id that it had before it was whole
}

// A Used is a tool's use, and what came of it.
export interface Used {
  kind: 'used';
  id: string;
  tool: string;
  input: unknown;
  output?: ToolOutput;
  parent?: string; // the tool's use within which it was used
}

// An Answered says who has answered a question, and how.
export interface Answered {
  by: string; // user id
  decision: string; // allow_once, allow_always, deny, deny_always
}

// An AskedState is what became of a question.
export type AskedState = 'open' | 'decided' | 'timeout' | 'cancelled';

export interface Conversation {
  readonly items: readonly Item[];
  readonly mark: number; // the highest number of an event that has come
  readonly running: boolean;
  readonly missing: boolean; // events are missing: the history must be read again
  readonly tokens?: TokenBudget;
}

export const empty: Conversation = { items: [], mark: 0, running: false, missing: false };

// subscribed applies the answer to a subscription. Events behind the mark follow.
export function subscribed(c: Conversation, ack: Subscribed): Conversation {
  const open = new Set(ack.pendingPermissions.map((p) => p.requestId));
  const items = c.items.map((item) => (item.kind === 'asked' && item.state === 'open' && !open.has(item.id) ? { ...item, state: 'cancelled' as const } : item));
  for (const pending of ack.pendingPermissions) {
    if (!items.some((item) => item.id === pending.requestId)) items.push(questionOf(pending));
  }
  return { ...c, items, running: ack.isProcessing, missing: c.missing || ack.gap === true };
}

// read begins with the rows of the history, which are whole but for what has come
// live since.
export function read(c: Conversation, rows: readonly ChatEvent[]): Conversation {
  let history: Conversation = { ...empty, mark: c.mark, running: c.running, ...(c.tokens === undefined ? {} : { tokens: c.tokens }) };
  for (const row of rows) history = fold(history, row);
  const known = new Set(history.items.map((item) => item.id));
  const rest = c.items.filter((item) => !known.has(item.id) && ((item.kind === 'asked' && item.state === 'open') || isLive(item) || newer(item, c) || outcome(item, c)));
  const before = new Map(c.items.map((item) => [`${item.kind} ${item.id}`, item]));
  const now = history.items.map((item) => kept(ended(item), before.get(`${item.kind} ${item.id}`)));
  return { ...history, running: c.running, items: [...withOutcomes(now, c.items.filter((item) => !rest.includes(item))), ...rest] };
}

// untold reports whether no history tells of an item: how a run has ended badly, or
// who has answered a question.
const untold = (item: Item): boolean => item.kind === 'failed' || (item.kind === 'ended' && !item.success) || (item.kind === 'asked' && item.state !== 'open');

// withOutcomes puts what no history tells behind what it was behind before.
function withOutcomes(now: Item[], before: readonly Item[]): Item[] {
  const items = [...now];
  let at = -1; // of what came last before it
  for (const item of before) {
    const known = items.findIndex(({ kind, id }) => kind === item.kind && id === item.id);
    if (known >= 0) at = known;
    else if (at >= 0 && untold(item)) items.splice(++at, 0, item);
  }
  return items;
}

// kept is the item that was there before, where it says the same: what is drawn of
// it stays.
function kept(item: Item, before: Item | undefined): Item {
  const now = attributed(item, before);
  return before !== undefined && JSON.stringify(sorted(now)) === JSON.stringify(sorted(before)) ? before : now;
}

const sorted = (item: Item): [string, unknown][] => Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1));

// attributed keeps who has sent a text, its names and those of its images: transcripts
// have none.
function attributed(item: Item, before: Item | undefined): Item {
  if (item.kind !== 'said' || before?.kind !== 'said') return item;
  const [from, name, images, { key }] = [item.from ?? before.from, item.name ?? before.name, before.images ?? item.images, before];
  return {
    ...item, ...(from === undefined ? {} : { from }), ...(name === undefined ? {} : { name }),
    ...(images === undefined ? {} : { images }), ...(key === undefined ? {} : { key }),
  };
}

// newer keeps what the history may not have yet: it is written behind the events.
function newer(item: Item, c: Conversation): boolean {
  return c.items.indexOf(item) > c.items.map(({ kind }) => kind).lastIndexOf('ended');
}

// outcome keeps how the last run has ended badly, which no history tells.
function outcome(item: Item, c: Conversation): boolean {
  if (item.kind !== 'failed' && !(item.kind === 'ended' && !item.success)) return false;
  return c.items.indexOf(item) > c.items.map((other) => other.kind === 'said' && other.role === 'user').lastIndexOf(true);
}

function isLive(item: Item): boolean {
  return item.kind === 'said' && item.live;
}

function ended(item: Item): Item {
  return item.kind === 'said' && item.live ? { ...item, live: false } : item;
}

// fold applies one event. One that was applied before changes nothing.
export function fold(c: Conversation, e: ChatEvent): Conversation {
  if (e.seq !== undefined) {
    if (e.seq <= c.mark) return c;
    c = { ...c, mark: e.seq };
  }
  switch (e.kind) {
    case 'text':
      return text(c, e.role === 'user' ? userSaid(e) : { kind: 'said', id: e.id, role: 'assistant', text: e.content, live: false });
    case 'stream_delta':
      return { ...c, running: true, items: delta(c.items, e.id, e.content) };
    case 'stream_end':
      return { ...c, items: c.items.map(ended) };
    case 'thinking':
      return put(c, { kind: 'thought', id: e.id, text: e.content });
    case 'tool_use': {
      const output = e.toolResult ?? used(c, e.toolId)?.output;
      return put(c, {
        kind: 'used', id: e.toolId, tool: e.toolName, input: e.toolInput,
        ...(output === undefined ? {} : { output }), ...(e.parentToolUseId === undefined ? {} : { parent: e.parentToolUseId }),
      });
    }
    case 'tool_result': {
      const use = used(c, e.toolId);
      return use === undefined ? c : put(c, { ...use, output: { content: e.content, isError: e.isError === true } });
    }
    case 'error':
      return put(c, { kind: 'failed', id: e.id, text: e.content });
    case 'status':
      return e.tokenBudget === undefined ? c : { ...c, tokens: e.tokenBudget };
    case 'permission_request':
      return put({ ...c, running: true }, questionOf(e));
    case 'permission_cancelled':
      return settle(c, e);
    case 'complete':
      return complete(c, { kind: 'ended', id: e.id, success: e.success, aborted: e.aborted, exitCode: e.exitCode });
  }
}

function userSaid(e: Extract<ChatEvent, { kind: 'text' }>): Said {
  return {
    kind: 'said', id: e.id, role: 'user', text: e.content, live: false,
    ...(e.from === undefined ? {} : { from: e.from }), ...(e.images === undefined ? {} : { images: e.images }),
    ...(e.clientMessageId === undefined ? {} : { name: e.clientMessageId }),
  };
}

// text puts a whole text in the place of the deltas that it repeats.
function text(c: Conversation, said: Said): Conversation {
  if (said.role === 'user') return put({ ...c, running: true }, said);
  const at = c.items.map(({ kind }) => kind).lastIndexOf('said');
  const last = c.items[at];
  if (last?.kind === 'said' && last.id.startsWith(streamed) && last.text === said.text) return { ...c, items: replaced(c.items, at, { ...said, key: last.id }) };
  return put(c, said);
}

// streamed begins the ids of texts of which only deltas have come.
const streamed = 'streamed ';

function delta(items: readonly Item[], id: string, content: string): Item[] {
  const last = items.at(-1);
  if (last?.kind === 'said' && last.live) return [...items.slice(0, -1), { ...last, text: last.text + content }];
  return [...items, { kind: 'said', id: streamed + id, role: 'assistant', text: content, live: true }];
}

// put adds an item, or replaces the one with its id.
function put(c: Conversation, item: Item): Conversation {
  const at = c.items.findIndex(({ id, kind }) => id === item.id && kind === item.kind);
  return { ...c, items: at < 0 ? [...c.items, item] : replaced(c.items, at, item) };
}

function replaced(items: readonly Item[], at: number, item: Item): Item[] {
  return [...items.slice(0, at), item, ...items.slice(at + 1)];
}

function used(c: Conversation, id: string): Used | undefined {
  return c.items.find((item): item is Used => item.kind === 'used' && item.id === id);
}

function questionOf(q: Question | Pending): Item {
  return {
    kind: 'asked', id: q.requestId, tool: q.toolName, input: q.input, revision: q.revision ?? 1, state: 'open',
    ...(q.expiresAt === undefined ? {} : { expiresAt: q.expiresAt }),
  };
}

function stateOf(reason: string): AskedState {
  return reason === 'timeout' || reason === 'decided' ? reason : 'cancelled';
}

function settle(c: Conversation, { requestId: id, reason, from, decision = '' }: Withdrawal): Conversation {
  const end = { state: stateOf(reason), ...(from === undefined ? {} : { answer: { by: from.userId, decision } }) };
  return { ...c, items: c.items.map((item) => (item.kind === 'asked' && item.id === id ? { ...item, ...end } : item)) };
}

// complete ends the run: nothing is live or open after it.
function complete(c: Conversation, item: Item): Conversation {
  const items = c.items.map((other) => (other.kind === 'asked' && other.state === 'open' ? { ...other, state: 'cancelled' as const } : ended(other)));
  return put({ ...c, items, running: false }, item);
}
