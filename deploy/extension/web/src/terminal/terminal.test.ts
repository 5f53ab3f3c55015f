import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Origins, Session, type ApiError, type Platform } from '@fairlead/core';
import { PanelTerminal } from './terminal.ts';

const relays = ['http://one.test', 'http://two.test'];

class FakeSocket {
  static all: FakeSocket[] = [];
  binaryType = '';
  bufferedAmount = 0;
  sent: string[] = [];
  closedWith: (number | undefined)[] = [];
  onopen?: () => void;
  onmessage?: (event: { data: unknown }) => void;
  onclose?: (event: { code: number }) => void;

  constructor(readonly url: URL, readonly protocols: string[]) {
    FakeSocket.all.push(this);
  }

  send(data: string | Uint8Array): void {
    this.sent.push(typeof data === 'string' ? data : new TextDecoder().decode(data));
  }

  close(code?: number): void {
    this.closedWith.push(code);
  }
}

// world is a relay that gives tickets until its token is over. Pauses pass at once.
function world() {
  FakeSocket.all = [];
  const asked: string[] = [];
  const state = { over: false, kept: null as string | null, refused: [] as ApiError[] };
  const platform: Platform = {
    fetch: async (url) => {
      if (state.over) return Response.json({ error: 'over' }, { status: 401 });
      if (url.endsWith('/grants')) return Response.json({ grant: 'g', expires_at: '2000-01-01T00:10:00Z' }, { headers: { Date: 'Sat, 01 Jan 2000 00:00:00 GMT' } });
      asked.push(url);
      return url.endsWith('/claude-available') ? Response.json({ available: true }) : Response.json({ sessionId: 's', attachToken: `t${asked.length}` });
    },
    WebSocket: FakeSocket as unknown as typeof WebSocket,
    clock: { now: () => 0, date: () => 0, setTimeout: (run, ms) => (ms < 10_000 ? setImmediate(run) : undefined), clearTimeout: (timer) => clearImmediate(timer as NodeJS.Immediate) },
    random: () => 0,
    uuid: () => 'u',
  };
  const session = new Session({ id: 'ses_1', token: 't', origins: new Origins({ first: relays[0] ?? '', all: relays }), platform });
  const terminal = new PanelTerminal(session, { changed: () => {}, size: () => ({ cols: 80, rows: 24 }), write: () => {}, reset: () => {}, note: () => {}, refused: (error) => state.refused.push(error) },
    { get: () => state.kept, set: (name) => (state.kept = name) }, platform);
  const socket = async (n: number): Promise<FakeSocket> => {
    for (let i = 0; FakeSocket.all[n] === undefined && i < 1_000; i++) await new Promise(setImmediate);
    const found = FakeSocket.all[n];
    assert.ok(found, `socket ${n}`);
    return found;
  };
  return { terminal, asked, state, socket };
}

test('a relay that is leaving names the next, where the terminal goes on', async () => {
  const { terminal, asked, socket } = world();
  terminal.start();
  const first = await socket(0);
  first.onopen?.();
  first.onmessage?.({ data: JSON.stringify({ type: 'moved', origin: 'http://two.test' }) });
  first.onclose?.({ code: 1012 });
  const second = await socket(1);
  assert.equal(second.url.origin, 'ws://two.test');
  assert.equal(asked.at(-1), 'http://two.test/pty-session/reattach');
  terminal.type('typed meanwhile');
  second.onopen?.();
  assert.deepEqual(second.sent, ['{"type":"resize","cols":80,"rows":24}', 'typed meanwhile']);
});

test('a relay that is none of ours is not gone to', async () => {
  const { terminal, socket } = world();
  terminal.start();
  const first = await socket(0);
  first.onopen?.();
  first.onmessage?.({ data: JSON.stringify({ type: 'moved', origin: 'http://evil.test' }) });
  first.onclose?.({ code: 1012 });
  assert.ok(['ws://one.test', 'ws://two.test'].includes((await socket(1)).url.origin));
});

test('a token that is over is said once, and the terminal is kept for the next sign-in', async () => {
  const { terminal, state, socket } = world();
  terminal.start();
  const first = await socket(0);
  first.onopen?.();
  assert.equal(state.kept, 's');
  // The grant is asked for anew: the one that is held is still good here.
  const over = world();
  over.state.over = true;
  over.terminal.start();
  for (let i = 0; over.state.refused.length === 0 && i < 1_000; i++) await new Promise(setImmediate);
  assert.deepEqual(over.state.refused.map(({ status }) => status), [401]);
  terminal.leave();
  assert.deepEqual([state.kept, first.closedWith], ['s', [undefined]]);
});

test('a person who signs out ends the terminal', async () => {
  const { terminal, state, socket } = world();
  terminal.start();
  const first = await socket(0);
  first.onopen?.();
  terminal.stop();
  assert.deepEqual([state.kept, first.closedWith], [null, [1000]]);
});
