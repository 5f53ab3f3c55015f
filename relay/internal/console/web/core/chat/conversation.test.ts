import assert from 'node:assert/strict';
import { test } from 'node:test';
import { empty, fold, read, subscribed, type Conversation, type Item } from './conversation.ts';
import type { ChatEvent } from './events.ts';

let seq = 0;

// event completes the members that every event has.
function event(kind: string, members: Record<string, unknown> = {}): ChatEvent {
  seq++;
  return { id: `e${seq}`, sessionId: 'c', timestamp: '', provider: 'claude', seq, kind, ...members } as unknown as ChatEvent;
}

const all = (...events: ChatEvent[]): Conversation => events.reduce(fold, empty);

const texts = (c: Conversation): string[] => c.items.map((item: Item) => ('text' in item ? `${item.kind} ${item.text}` : `${item.kind} ${item.id}`));

test('deltas become one text, and the whole text takes its place', () => {
  const live = all(event('stream_delta', { content: 'hel' }), event('stream_delta', { content: 'lo' }));
  assert.deepEqual(texts(live), ['said hello']);
  assert.equal(live.items[0]?.kind === 'said' && live.items[0].live, true);
  const whole = fold(fold(live, event('stream_end')), event('text', { role: 'assistant', content: 'hello', id: 'u_0' }));
  assert.deepEqual(whole.items, [{ kind: 'said', id: 'u_0', role: 'assistant', text: 'hello', live: false, key: live.items[0]?.id }], 'it is the same row');
});

test('another text is another item', () => {
  const c = all(event('stream_delta', { content: 'one' }), event('stream_end'), event('stream_delta', { content: 'two' }), event('text', { role: 'assistant', content: 'three' }));
  assert.deepEqual(texts(c), ['said one', 'said two', 'said three']);
});

test('an event that came before changes nothing', () => {
  const e = event('text', { role: 'assistant', content: 'x' });
  const c = all(e);
  assert.equal(fold(c, e), c);
});

test('a tool has its result, whichever comes first', () => {
  const use = { toolId: 't1', toolName: 'Bash', toolInput: { command: 'ls' } };
  const c = all(event('tool_use', use), event('tool_result', { toolId: 't1', content: 'a', isError: true }), event('tool_use', use));
  assert.deepEqual(c.items, [{ kind: 'used', id: 't1', tool: 'Bash', input: { command: 'ls' }, output: { content: 'a', isError: true } }]);
});

test('a question is open until it is decided, or its run is over', () => {
  const ask = (id: string) => event('permission_request', { requestId: id, toolName: 'Bash', input: {} });
  const c = all(ask('q1'), ask('q2'), event('permission_cancelled', { requestId: 'q1', reason: 'decided', from: { userId: 'bob' }, decision: 'deny' }), event('complete', { success: true, aborted: false, exitCode: 0 }));
  assert.deepEqual(c.items.flatMap((item) => (item.kind === 'asked' ? [item.state] : [])), ['decided', 'cancelled']);
  assert.deepEqual(c.items.flatMap((item) => (item.kind === 'asked' ? [item.answer] : [])), [{ by: 'bob', decision: 'deny' }, undefined]);
  assert.equal(c.running, false);
});

test('a subscription tells what is open, and that events are missing', () => {
  const before = all(event('permission_request', { requestId: 'q1', toolName: 'Bash', input: {} }));
  const c = subscribed(before, {
    kind: 'chat_subscribed', sessionId: 'c', isProcessing: true, lastSeq: 9, gap: true,
    pendingPermissions: [{ requestId: 'q2', toolName: 'Edit', input: { a: 1 }, revision: 1, receivedAt: '' }],
  });
  assert.deepEqual(c.items.flatMap((item) => (item.kind === 'asked' ? [`${item.id} ${item.state}`] : [])), ['q1 cancelled', 'q2 open']);
  assert.equal(c.missing && c.running, true);
});

test('the history comes before what is live, each once', () => {
  const live = all(
    event('text', { role: 'user', content: 'hi', id: 'u1' }), event('text', { role: 'assistant', content: 'old', id: 'u2_0' }),
    event('complete', { success: true, aborted: false, exitCode: 0, id: 'end' }),
    event('text', { role: 'user', content: 'more', id: 'u3' }), event('stream_delta', { content: 'now' }),
  );
  const row = (id: string, role: string, content: string): ChatEvent => ({ id, sessionId: 'c', timestamp: '', provider: 'claude', kind: 'text', role, content });
  const c = read(live, [row('u0', 'assistant', 'ancient'), row('u1', 'user', 'hi'), row('u2_0', 'assistant', 'old')]);
  assert.deepEqual(texts(c), ['said ancient', 'said hi', 'said old', 'said more', 'said now']);
  assert.equal(c.mark, live.mark);
  assert.equal(c.items[2], live.items[1], 'what is as it was is the same item: it isn’t drawn anew');
});

test('what no history tells stays where it was: answers, and how runs have ended badly', () => {
  const live = all(
    event('text', { role: 'user', content: 'hi', id: 'u1' }), event('permission_request', { requestId: 'q1', toolName: 'Bash', input: {} }),
    event('permission_cancelled', { requestId: 'q1', reason: 'decided', from: { userId: 'bob' }, decision: 'deny' }), event('complete', { success: false, aborted: true, exitCode: 0, id: 'end1' }),
    event('text', { role: 'user', content: 'more', id: 'u2' }), event('text', { role: 'assistant', content: 'yes', id: 'a2' }),
    event('complete', { success: true, aborted: false, exitCode: 0, id: 'end2' }),
  );
  const row = (id: string, role: string, content: string): ChatEvent => ({ id, sessionId: 'c', timestamp: '', provider: 'claude', kind: 'text', role, content });
  const rows = [row('u0', 'user', 'old'), row('u1', 'user', 'hi'), row('u2', 'user', 'more'), row('a2', 'assistant', 'yes')];
  assert.deepEqual(read(live, rows).items.map(({ id }) => id), ['u0', 'u1', 'q1', 'end1', 'u2', 'a2']);
  assert.deepEqual(read(read(live, rows), rows).items.map(({ id }) => id), ['u0', 'u1', 'q1', 'end1', 'u2', 'a2']);
});
