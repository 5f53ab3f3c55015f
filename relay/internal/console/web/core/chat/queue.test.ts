import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ChatEvent, ChatFrame } from './events.ts';
import { dropped, heard, type Outgoing } from './outbox.ts';
import { keptChars, Queue, type Store } from './queue.ts';

const message = (name: string, conversation = 'c1', content = name): Outgoing => ({ name, conversation, content, images: [], options: {} });

// A page is a queue with a socket's outbox, over a store that outlives it.
function page(store: Store, you = 'alice') {
  const due: { at: number; run: () => void }[] = [];
  const said: string[] = [];
  let now = 0;
  let outbox: readonly Outgoing[] = [];
  let queue: Queue | undefined;
  const hold = (list: readonly Outgoing[]) => {
    outbox = list;
    queue?.outbox(list);
  };
  const clock = { now: () => now, date: () => now, setTimeout: (run: () => void, ms: number) => due.push({ at: now + ms, run }), clearTimeout: () => undefined };
  queue = new Queue({ you, store, clock }, {
    send: (m) => {
      said.push(m.name);
      hold([...outbox, m]);
    },
    withdraw: (name) => hold(dropped(outbox, name)),
    changed: () => undefined,
  });
  return {
    queue, said,
    outbox: () => outbox.map(({ name }) => name),
    held: () => queue.held.map(({ name }) => name),
    frame: (kind: string, members: object = {}) => {
      const frame = { kind, sessionId: 'c1', ...members } as unknown as ChatFrame;
      hold(heard(outbox, frame));
      queue.frame(frame);
    },
    pass: (ms: number) => {
      now += ms;
      for (const { at, run } of due.splice(0)) at <= now ? run() : due.push({ at, run });
    },
  };
}

const memory = (): Store & { text: string | null } => {
  const store = { text: null as string | null, get: () => store.text, set: (text: string | null) => void (store.text = text) };
  return store;
};

const ack = { isProcessing: false, pendingPermissions: [] };
const echo = (name: string, seq: number) => ({ id: name, seq, role: 'user', content: name, clientMessageId: name });
const over = { id: 'e', seq: 99, success: true, aborted: false, exitCode: 0 };

test('messages wait for the connection and go one at a time, each when the run before is over', () => {
  const p = page(memory());
  p.queue.add(message('m1'));
  p.queue.add(message('m2'));
  assert.deepEqual(p.said, []);
  p.frame('chat_subscribed', ack);
  assert.deepEqual([p.said, p.held()], [['m1'], ['m2']]);
  p.frame('run_state', { state: 'running' });
  p.frame('text', echo('m1', 1));
  assert.deepEqual([p.said, p.outbox()], [['m1'], []]);
  p.frame('run_state', { state: 'idle' });
  assert.deepEqual(p.said, ['m1']);
  p.frame('complete', over);
  assert.deepEqual(p.said, ['m1', 'm2']);
  assert.equal(p.queue.mark('c1'), 99);
});

test('a reload keeps what waits and what nobody has confirmed, with its names', () => {
  const store = memory();
  const first = page(store);
  first.frame('chat_subscribed', ack);
  first.queue.add(message('m1'));
  first.queue.add(message('m2'));
  first.queue.add(message('m3'));
  first.queue.drop('m3');
  const second = page(store);
  assert.deepEqual([second.held(), [...second.queue.conversations]], [['m1', 'm2'], ['c1']]);
  second.frame('chat_subscribed', { ...ack, isProcessing: true });
  assert.deepEqual(second.said, []);
  second.frame('text', echo('m1', 1)); // what runs is the first
  second.frame('complete', over);
  assert.deepEqual(second.said, ['m2']);
  second.frame('text', echo('m2', 100));
  assert.equal(store.text, null);
});

test('what the history names has arrived, sent again or not', () => {
  const store = memory();
  page(store).queue.add(message('m1'));
  const row = { kind: 'text', id: 'u', role: 'user', content: 'm1', clientMessageId: 'm1' } as unknown as ChatEvent;
  const before = page(store);
  before.queue.known([row]);
  before.frame('chat_subscribed', ack);
  assert.deepEqual(before.said, []);
  page(store).queue.add(message('m1'));
  const after = page(store);
  after.frame('chat_subscribed', ack);
  assert.deepEqual(after.said, ['m1']);
  after.queue.known([row]);
  assert.deepEqual([after.outbox(), store.text], [[], null]);
});

test('what is kept is one person’s, and bounded', () => {
  const store = memory();
  const p = page(store);
  p.queue.add(message('m1'));
  p.queue.add(message('m2', 'c1', 'x'.repeat(keptChars)));
  assert.ok(p.queue.keeps('m1') && !p.queue.keeps('m2'));
  assert.ok((store.text ?? '').length < 1_000);
  assert.deepEqual(page(store, 'bob').held(), []);
  for (const text of ['{', '[]', '{"you":"alice","messages":[{"name":1}]}', '{"you":"alice"}']) {
    store.set(text);
    assert.deepEqual(page(store).held(), []);
  }
});

test('a message that came while something ran waits again', () => {
  const p = page(memory());
  p.frame('chat_subscribed', ack);
  p.queue.add(message('m1'));
  p.queue.add(message('m2'));
  const refusal = { code: 'RUN_IN_PROGRESS', error: 'x', clientMessageId: 'm1' };
  p.frame('protocol_error', refusal);
  assert.deepEqual([p.outbox(), p.held()], [[], ['m1', 'm2']]);
  p.pass(5_000); // nothing is seen to run
  assert.deepEqual(p.said, ['m1', 'm1']);
  p.frame('protocol_error', refusal);
  p.frame('run_state', { state: 'running' });
  p.pass(5_000);
  assert.deepEqual(p.said, ['m1', 'm1']);
  p.frame('complete', over);
  assert.deepEqual([p.said, p.held()], [['m1', 'm1', 'm1'], ['m2']]);
});

test('nothing goes while somebody else writes, or on a lost connection', () => {
  const p = page(memory());
  p.frame('chat_subscribed', ack);
  p.frame('control_state', { controller: 'bob', requests: [], state: 'held' });
  p.queue.add(message('m1'));
  assert.deepEqual(p.said, []);
  p.queue.lost();
  p.frame('control_state', { controller: 'alice', requests: [], state: 'held' });
  assert.deepEqual(p.said, []);
  p.frame('chat_subscribed', ack);
  assert.deepEqual(p.said, ['m1']);
});

test('another conversation’s messages go by themselves', () => {
  const p = page(memory());
  p.queue.add(message('m1', 'c2'));
  p.queue.add(message('m2'));
  p.frame('chat_subscribed', ack);
  assert.deepEqual([p.said, p.held()], [['m2'], ['m1']]);
});

test('nothing goes while the conversation is in a terminal', () => {
  const p = page(memory());
  p.frame('chat_subscribed', ack);
  p.frame('run_state', { state: 'idle', terminal: 'pty_1' });
  p.queue.add(message('m1'));
  p.frame('chat_subscribed', ack); // as after a reconnect
  p.pass(60_000);
  assert.deepEqual([p.said, p.held()], [[], ['m1']]);
  p.frame('run_state', { state: 'idle' });
  assert.deepEqual([p.said, p.held()], [['m1'], []]);
});
