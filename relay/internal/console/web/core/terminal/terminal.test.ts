import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Platform } from '../platform.ts';
import { encodeInput, freeTerm, type ClientMessage, type ControlState, type ServerMessage } from '../protocol.ts';
import { Origins } from '../session/origins.ts';
import { Session } from '../session/session.ts';
import { Terminal } from './terminal.ts';

const turns = async () => {
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
};

class FakeSocket {
  binaryType = '';
  readyState = 0;
  readonly sent: (string | Uint8Array)[] = [];
  onopen = () => {};
  onmessage = (_: { data: string | ArrayBuffer }) => {};
  onclose = (_: { code: number }) => {};

  constructor(readonly url: URL, readonly protocols: string[]) {}

  send(data: string | Uint8Array): void {
    this.sent.push(data);
  }

  close(): void {
    this.readyState = 3;
  }

  open(...messages: ServerMessage[]): void {
    this.readyState = 1;
    this.onopen();
    for (const message of messages) this.tell(message);
  }

  tell(message: ServerMessage): void {
    this.onmessage({ data: JSON.stringify(message) });
  }

  bytes(text: string): void {
    this.onmessage({ data: new TextEncoder().encode(text).buffer });
  }

  // messages are those of one type that were sent here.
  messages(type: ClientMessage['type']): unknown[] {
    return this.sent.filter((data) => typeof data === 'string').map((data) => JSON.parse(data) as ClientMessage).filter((message) => message.type === type);
  }

  get input(): Uint8Array[] {
    return this.sent.filter((data) => typeof data !== 'string');
  }
}

// world is a platform whose clock stands still until it is moved, with relays that
// answer unless they are down.
function world() {
  const sockets: FakeSocket[] = [];
  const asked: string[] = [];
  const down = new Set<string>();
  const timers = new Map<number, { at: number; run: () => void }>();
  let [now, next] = [0, 1];
  const platform: Platform = {
    fetch: async (url) => {
      const { origin, pathname } = new URL(url);
      asked.push(`${origin}${pathname}`);
      if (down.has(origin)) throw new Error('no answer');
      if (pathname === '/grants') return Response.json({ grant: `g${asked.length}`, expires_at: new Date(now + 600_000).toISOString() }, { headers: { Date: new Date(now).toUTCString() } });
      return Response.json({ ws_url: `${origin.replace('http', 'ws')}/ws`, ticket: `t${asked.length}` });
    },
    WebSocket: class extends FakeSocket {
      constructor(url: URL, protocols: string[]) {
        super(url, protocols);
        sockets.push(this);
      }
    } as unknown as Platform['WebSocket'],
    clock: {
      now: () => now,
      date: () => now,
      setTimeout: (run, ms) => {
        timers.set(next, { at: now + ms, run });
        return next++;
      },
      clearTimeout: (timer) => timers.delete(timer as number),
    },
    random: () => 0.5,
    uuid: () => 'id',
  };
  const advance = async (ms: number) => {
    const end = now + ms;
    for (;;) {
      const due = [...timers].filter(([, t]) => t.at <= end).sort((a, b) => a[1].at - b[1].at)[0];
      if (due === undefined) break;
      timers.delete(due[0]);
      now = due[1].at;
      due[1].run();
      await turns();
    }
    now = end;
  };
  const socket = () => sockets.at(-1) ?? assert.fail('no socket was opened');
  return { platform, sockets, socket, asked, down, advance };
}

const attached = (offset: number): ServerMessage => ({ type: 'attached', epoch: 'e1', offset, head: offset, cols: 80, rows: 24, mode: 'resume', keyframe_bytes: 0 });
const control = (more: Partial<ControlState> = {}): ServerMessage => ({ type: 'control_state', controller: 'usr_a', requests: [], term: 1, agent_state: 'stopped', you: 'usr_a', can_control: true, ...more });
const [a, b] = ['https://a.test', 'https://b.test'];

async function open(more: { seen?: boolean; followsSize?: boolean; types?: string } = {}) {
  const w = world();
  const told: string[] = [];
  let shown = '';
  const session = new Session({ id: 's', token: 'ut_x', origins: new Origins({ first: a, all: [a, b] }), platform: w.platform });
  const terminal: Terminal = new Terminal(session, 'pty_1', { id: 'usr_a', name: 'alice' }, {
    write: (bytes, offset, rendered) => {
      shown += new TextDecoder().decode(bytes);
      told.push(`write ${offset}`);
      rendered();
    },
    clear: () => told.push('clear'),
    resize: (cols, rows) => told.push(`${cols}x${rows}`),
    unseen: ({ from, to }, skipped) => told.push(`${skipped ? 'skipped' : 'earlier'} ${from}-${to}`),
    connection: ({ phase }) => {
      told.push(phase.name);
      if (phase.name === 'attached' && more.types !== undefined) terminal.type(keys(more.types));
    },
    dropped: (bytes, reason) => told.push(`dropped ${bytes} ${reason}`),
    withdrawn: (bytes) => told.push(`withdrawn ${bytes}`),
    seen: () => more.seen === true,
  }, more);
  terminal.start();
  await turns();
  return { ...w, session, terminal, told, shown: () => shown };
}

const keys = (text: string) => new TextEncoder().encode(text);

test('output goes on where a connection broke, and nothing is asked for under another name', async () => {
  const { terminal, socket, advance, told, shown, sockets } = await open();
  assert.deepEqual(socket().protocols, ['terminal.v2', 'ticket.t2']);
  socket().open(control(), attached(0));
  socket().bytes('one ');
  assert.deepEqual(told, ['preparing', 'opening', 'earlier 0-0', 'clear', '80x24', 'attached', 'write 0']);
  socket().onclose({ code: 1006 });
  assert.equal(terminal.connection.phase.name, 'lost');
  await advance(1_000);
  assert.equal(sockets.length, 2);
  assert.equal(socket().url.searchParams.get('since'), 'e1:4');
  assert.equal(socket().url.searchParams.get('client'), 'id');
  assert.equal(socket().url.searchParams.get('size'), null);
  told.length = 0;
  socket().open(control(), attached(4));
  socket().bytes('two');
  assert.deepEqual(told, ['80x24', 'attached', 'write 4']);
  assert.equal(shown(), 'one two');
  assert.deepEqual(socket().messages('ack'), [{ type: 'ack', offset: 7 }]);
  terminal.stop();
  assert.equal(socket().readyState, 3);
});

test('what is typed is kept, and sent again with its numbers', async () => {
  const { terminal, socket, advance } = await open();
  assert.equal(terminal.type(keys('x')), 'no_connection'); // nobody knows yet who may type
  socket().open(control(), attached(0));
  assert.equal(terminal.type(keys('a')), null);
  assert.equal(terminal.type(keys('b')), null);
  assert.deepEqual(socket().input, [encodeInput(1, 1, keys('a')), encodeInput(2, 1, keys('b'))]);
  socket().tell({ type: 'input_ack', seq: 1 });
  socket().onclose({ code: 1006 });
  assert.equal(terminal.type(keys('c')), null);
  assert.equal(terminal.pending, 2);
  await advance(1_000);
  socket().open(control(), attached(0));
  assert.deepEqual(socket().input, [encodeInput(2, 1, keys('b')), encodeInput(3, 1, keys('c'))]);
  assert.equal(terminal.type(new Uint8Array((8 << 20) + 1)), 'full');
  terminal.stop();
});

test('what a hook types as a connection begins comes behind what is sent again, and once', async () => {
  const { terminal, socket, advance } = await open({ types: 'h' });
  socket().open(control(), attached(0));
  assert.deepEqual(socket().input, [encodeInput(1, 1, keys('h'))]);
  socket().onclose({ code: 1006 });
  terminal.type(keys('k'));
  await advance(1_000);
  socket().open(control(), attached(0));
  assert.deepEqual(socket().input, [encodeInput(1, 1, keys('h')), encodeInput(2, 1, keys('kh'))]);
  terminal.stop();
});

test('what was typed under another control never leaves', async () => {
  const { terminal, socket, advance, told } = await open();
  socket().open(control(), attached(0));
  socket().onclose({ code: 1006 });
  terminal.type(keys('rm -r x'));
  await advance(1_000);
  told.length = 0;
  socket().open(control({ controller: 'usr_b', term: 2 }), attached(0));
  assert.equal(told[0], 'withdrawn 7');
  assert.equal(terminal.type(keys('x')), 'not_controller');
  socket().tell({ type: 'control_granted', from: 'usr_b', to: 'usr_a', controller: 'usr_a', term: 3 });
  assert.equal(terminal.type(keys('y')), null);
  socket().tell({ type: 'agent_state', agent_state: 'running', agent: 'claude' });
  assert.equal(terminal.type(keys('z')), 'agent_running');
  assert.deepEqual(socket().input, [encodeInput(1, 3, keys('y'))]);
  terminal.stop();
});

test('the first key takes a terminal that nobody controls', async () => {
  const { terminal, socket } = await open();
  socket().open(control({ controller: '', term: 4 }), attached(0));
  assert.equal(terminal.mine, false);
  assert.equal(terminal.type(keys('x')), null);
  assert.deepEqual(socket().input, [encodeInput(1, freeTerm(4), keys('x'))]);
  terminal.stop();
});

test('of input with a hole in it the rest is dropped, and what is refused for the moment is sent again', async () => {
  const { terminal, socket, advance, told } = await open();
  socket().open(control(), attached(0));
  terminal.type(keys('x'.repeat(100_000))); // more than may be unacknowledged
  const sent = socket().input.length;
  told.length = 0;
  socket().tell({ type: 'input_refused', reason: 'busy', seq: 1 });
  await advance(300);
  assert.equal(socket().input.length, 2 * sent);
  socket().tell({ type: 'input_refused', reason: 'stale_term', seq: 1 });
  assert.deepEqual(told, ['dropped 16298 stale_term', `dropped ${100_000 - (64 << 10)} stale_term`]);
  terminal.stop();
});

test('a relay that stays silent is left for another, at once where somebody looks', async () => {
  const { terminal, socket, advance } = await open({ seen: true, followsSize: true });
  socket().open(control(), attached(0));
  assert.equal(socket().url.searchParams.get('size'), 'follow');
  socket().tell({ type: 'pong' });
  assert.equal(socket().messages('ping').length, 1);
  await advance(3_500);
  assert.equal(terminal.connection.phase.name, 'opening');
  assert.equal(socket().url.host, 'b.test');
  terminal.stop();
});

test('a relay that is down, or says where the terminal went, leads to the other', async () => {
  const { session, terminal, socket, advance, down, asked } = await open();
  socket().open(control(), attached(0));
  down.add(a);
  socket().onclose({ code: 1006 });
  await advance(1_000);
  assert.equal(socket().url.host, 'b.test');
  assert.equal(asked.at(-1), `${b}/pty-session`);
  down.clear();
  socket().open(control(), attached(0), { type: 'moved', origin: a });
  socket().onclose({ code: 1012 });
  await advance(1_000);
  assert.equal(socket().url.host, 'a.test');
  assert.equal(session.origins.current, a);
  terminal.stop();
});

test('all sockets of a session are told of a new grant, until they stop', async () => {
  const { session, terminal, socket, sockets, advance } = await open();
  const other = new Terminal(session, 'pty_2', { id: 'usr_a', name: 'alice' }, { write: () => {}, clear: () => {}, resize: () => {} });
  socket().open(control(), attached(0));
  other.start();
  await turns();
  socket().open(control(), attached(0));
  await advance(500_000);
  assert.deepEqual(sockets.map((each) => each.messages('reauth').length), [1, 1]);
  other.stop();
  terminal.stop();
  await session.ask((_, grant) => Promise.resolve(grant), true);
  assert.deepEqual(sockets.map((each) => each.messages('reauth').length), [1, 1]);
});

test('what a relay tells of a terminal is forgotten with the connection', async () => {
  const { terminal, socket, advance } = await open();
  socket().open(control(), attached(0), { type: 'recording', id: 'rec_1' }, { type: 'shared', with: 'session' }, { type: 'output_held', held: true }, { type: 'leading', leads: false });
  assert.deepEqual(terminal.facts, { recording: 'rec_1', shared: 'session', held: true });
  assert.deepEqual([terminal.mine, terminal.leads], [true, false]);
  terminal.attend();
  assert.equal(socket().messages('lead').length, 1);
  socket().onclose({ code: 1006 });
  await advance(1_000);
  socket().open(attached(0));
  assert.deepEqual(terminal.facts, { recording: '', shared: 'none', held: false });
  assert.equal(terminal.leads, true);
  terminal.stop();
});
