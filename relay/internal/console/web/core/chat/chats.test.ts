import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Platform } from '../platform.ts';
import { Origins } from '../session/origins.ts';
import { Session } from '../session/session.ts';
import { Chats, type Reach } from './chats.ts';
import type { ChatFrame } from './events.ts';
import type { Outgoing } from './outbox.ts';

const turns = async () => {
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
};

// A Wire is a socket that the test holds the other end of.
class Wire {
  readyState = 0;
  bufferedAmount = 0;
  said: Record<string, unknown>[] = [];
  onopen: (() => void) | null = null;
  onmessage: ((e: { data: string }) => void) | null = null;
  onclose: ((e: { code: number }) => void) | null = null;

  constructor(readonly url: URL, readonly protocols: string[]) {}

  open(): void {
    this.readyState = 1;
    this.onopen?.();
  }

  bring(frame: object): void {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }

  send(text: string): void {
    this.said.push(JSON.parse(text) as Record<string, unknown>);
  }

  close(code = 1006): void {
    this.readyState = 3;
    this.onclose?.({ code });
  }
}

// A World is a relay that answers every request, and a clock that is set by hand.
function world() {
  const wires: Wire[] = [];
  const due: { at: number; run: () => void }[] = [];
  const requests: string[] = [];
  let now = 0;
  const platform: Platform = {
    fetch: (url, init) => {
      const { Authorization: bearer } = init.headers as Record<string, string>;
      requests.push(`${new URL(url).pathname} ${bearer}`);
      const body = url.endsWith('/grants') ? { grant: `g${requests.length}`, expires_at: new Date(600_000).toISOString() } : { ws_url: 'ws://relay/ws', ticket: `t${requests.length}` };
      return Promise.resolve(new Response(JSON.stringify(body)));
    },
    WebSocket: class {
      constructor(url: URL, protocols: string[]) {
        const wire = new Wire(url, protocols);
        wires.push(wire);
        return wire;
      }
    } as unknown as Platform['WebSocket'],
    clock: {
      now: () => now,
      date: () => now,
      setTimeout: (run, ms) => {
        const timer = { at: now + ms, run };
        due.push(timer);
        return timer;
      },
      clearTimeout: (timer) => {
        const at = due.indexOf(timer as (typeof due)[number]);
        if (at >= 0) due.splice(at, 1);
      },
    },
    random: () => 0,
    uuid: () => 'uuid',
  };
  const frames: ChatFrame[] = [];
  const reaches: Reach[] = [];
  let outbox: readonly Outgoing[] = [];
  const session = new Session({ id: 'ses_1', token: 'ut', origins: new Origins({ first: 'http://relay' }), platform });
  const chats = new Chats(session, { frame: (f) => frames.push(f), reach: (r) => reaches.push(r), outbox: (o) => (outbox = o) });
  const pass = async (ms: number) => {
    now += ms;
    for (const timer of due.filter(({ at }) => at <= now)) {
      due.splice(due.indexOf(timer), 1);
      timer.run();
    }
    await turns();
  };
  return { chats, wires, frames, reaches, requests, pass, outbox: () => outbox };
}

const message = (name: string): Outgoing => ({ name, conversation: 'c1', content: 'hi', images: [], options: {} });

test('a socket says hello, subscribes, and after a loss again from the marks', async () => {
  const w = world();
  let mark = 3;
  w.chats.follow('c1', () => mark);
  w.chats.start();
  await turns();
  assert.deepEqual(w.wires[0]?.protocols, ['ticket.t2']);
  w.wires[0]?.open();
  assert.equal(w.wires[0]?.said[0]?.type, 'chat.hello');
  assert.deepEqual(w.wires[0]?.said[1], { type: 'chat.subscribe', sessions: [{ sessionId: 'c1', lastSeq: 3 }] });
  mark = 7;
  w.wires[0]?.close();
  await w.pass(1_000);
  w.wires[1]?.open();
  assert.deepEqual(w.wires[1]?.said[1], { type: 'chat.subscribe', sessions: [{ sessionId: 'c1', lastSeq: 7 }] });
  assert.deepEqual(w.reaches, ['open', 'lost', 'open']);
  w.chats.stop();
});

test('what is followed anew is told from its mark on, not from what was on its way', async () => {
  const w = world();
  w.chats.follow('c1', () => 4);
  w.chats.start();
  await turns();
  const wire = w.wires[0];
  wire?.open();
  const event = (seq: number, sessionId = 'c1') => wire?.bring({ kind: 'stream_delta', content: `${seq} `, seq, id: `e${seq}`, sessionId });
  const ack = () => wire?.bring({ kind: 'chat_subscribed', sessionId: 'c1', isProcessing: true, lastSeq: 6, pendingPermissions: [] });
  const told = () => w.frames.splice(0).map((frame) => ('seq' in frame ? `${frame.sessionId} ${frame.seq}` : frame.kind)).join();
  w.chats.follow('c1', () => 0);
  event(5, 'c2');
  ack(); // of the first
  event(5);
  event(6);
  assert.equal(told(), 'c2 5,chat_subscribed');
  ack();
  event(1);
  assert.equal(told(), 'chat_subscribed,c1 1');
  w.chats.follow('c1', () => 0);
  wire?.close();
  await w.pass(1_000);
  w.wires[1]?.open();
  w.wires[1]?.bring({ kind: 'stream_delta', content: 'x', seq: 2, id: 'e2', sessionId: 'c1' });
  assert.equal(told(), 'c1 2');
  w.chats.stop();
});

test('a message is sent until it is seen, and a refused one is not', async () => {
  const w = world();
  w.chats.start();
  w.chats.send(message('m1')); // there is no socket yet
  await turns();
  w.wires[0]?.open();
  w.wires[0]?.close();
  await w.pass(1_000);
  w.wires[1]?.open();
  assert.equal(w.wires[1]?.said.filter(({ clientMessageId }) => clientMessageId === 'm1').length, 1);
  w.wires[1]?.bring({ kind: 'text', role: 'user', content: 'hi', seq: 1, id: 'u', sessionId: 'c1', clientMessageId: 'm1' });
  assert.deepEqual(w.outbox(), []);
  w.chats.send(message('m2'));
  w.wires[1]?.bring({ kind: 'protocol_error', code: 'NOT_CONTROLLER', error: 'no', sessionId: 'c1', clientMessageId: 'm2' });
  assert.equal(w.outbox()[0]?.refused, 'no');
  w.chats.withdraw('m2');
  assert.deepEqual(w.outbox(), []);
  w.chats.stop();
});

test('what nobody can take now is sent again', async () => {
  const w = world();
  w.chats.start();
  await turns();
  w.wires[0]?.open();
  w.chats.send(message('m1'));
  w.wires[0]?.bring({ kind: 'protocol_error', code: 'UNAVAILABLE', error: 'later', sessionId: 'c1', clientMessageId: 'm1' });
  await w.pass(2_000);
  assert.equal(w.wires[0]?.said.filter(({ clientMessageId }) => clientMessageId === 'm1').length, 2);
  w.chats.stop();
});

test('a socket that is dead without knowing is left when the network is back, or when nothing comes after a message', async () => {
  const w = world();
  w.chats.start();
  await turns();
  w.wires[0]?.open();
  await w.pass(60_000); // nobody waits for anything
  assert.equal(w.wires.length, 1);
  w.chats.now();
  await turns();
  assert.equal(w.wires[0]?.readyState, 3);
  w.wires[1]?.open();
  w.chats.send(message('m1'));
  if (w.wires[1] !== undefined) w.wires[1].bufferedAmount = 1; // it is still on its way
  await w.pass(8_000);
  if (w.wires[1] !== undefined) w.wires[1].bufferedAmount = 0;
  await w.pass(7_000);
  w.wires[1]?.bring({ kind: 'run_state', sessionId: 'c1', state: 'running' });
  await w.pass(7_000);
  assert.equal(w.wires.length, 2);
  await w.pass(1_000);
  assert.equal(w.wires.length, 3);
  w.wires[2]?.open();
  assert.deepEqual(w.wires[2]?.said.map(({ clientMessageId }) => clientMessageId).filter(Boolean), ['m1']);
  w.wires[2]?.bring({ kind: 'text', role: 'user', content: 'hi', seq: 1, id: 'u', sessionId: 'c1', clientMessageId: 'm1' });
  await w.pass(60_000);
  assert.equal(w.wires.length, 3);
  assert.deepEqual(w.reaches, ['open']);
  w.chats.stop();
});

test('a grant that has ended is renewed once', async () => {
  const w = world();
  w.chats.start();
  await turns();
  w.wires[0]?.open();
  w.wires[0]?.close(4401);
  await turns();
  assert.equal(w.wires.length, 2);
  assert.notEqual(w.requests[1], w.requests[3], 'another grant');
  w.wires[1]?.close(4401);
  await w.pass(60_000);
  assert.equal(w.wires.length, 2);
  assert.equal(w.reaches.at(-1), 'refused');
});

test('a frame of a kind that is not known is left out', async () => {
  const w = world();
  w.chats.start();
  await turns();
  w.wires[0]?.open();
  w.wires[0]?.bring({ kind: 'weather' });
  assert.deepEqual(w.frames, []);
  w.chats.stop();
});
