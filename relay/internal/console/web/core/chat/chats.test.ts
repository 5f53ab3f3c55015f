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
