import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Clock } from '@fairlead/core';
import { Extension, lookMs, runtimeOf, type Envelope, type Found, type Port, type Runtime } from './extension.ts';
import { stateOf, tabOf, timesOf, until, type Ran } from './view.ts';

// A clock that the test moves.
class FakeClock implements Clock {
  at = 0;
  readonly timers = new Set<{ at: number; run: () => void }>();
  now = (): number => this.at;
  date = (): number => 1_730_000_000_000;
  setTimeout(run: () => void, ms: number): unknown {
    const timer = { at: this.at + ms, run };
    this.timers.add(timer);
    return timer;
  }
  clearTimeout(timer: unknown): void {
    this.timers.delete(timer as { at: number; run: () => void });
  }
  pass(ms: number): void {
    this.at += ms;
    for (const timer of [...this.timers]) {
      if (timer.at > this.at || !this.timers.delete(timer)) continue;
      timer.run();
    }
  }
}

type Message = { type: string; action: string; requestId: string; [more: string]: unknown };
type Answer = (id: string, message: Message, answer: (reply: unknown) => void) => void;

class FakeRuntime implements Runtime {
  lastError: { message?: string } | undefined;
  readonly sent: { id: string; message: Message }[] = [];
  constructor(private readonly answer: Answer) {}
  sendMessage(id: string, message: unknown, answer: (reply: unknown) => void): void {
    this.sent.push({ id, message: message as Message });
    this.answer(id, message as Message, answer);
  }
  connect(): Port {
    throw new Error('no port');
  }
}

const browserId = `br_${'a'.repeat(26)}`;
const envelope: Envelope = { commandId: 'cmd_1', traceId: 'tr_1', target: { extensionId: 'b', tabId: 7 }, jws: 'x.y.z' };

test('a command is handed on as seed 003 has it, and nothing is read of it', async () => {
  const runtime = new FakeRuntime((_, message, answer) => answer({ ok: true, requestId: message.requestId, data: { accepted: true } }));
  const extension = new Extension(runtime, new FakeClock());
  await extension.invoke(envelope, 'a');
  await extension.invoke({ ...envelope, target: { tabId: 7 } }, 'a');
  assert.deepEqual(runtime.sent[0], { id: 'b', message: { type: 'driver', action: 'invoke', requestId: 'web-1730000000000', commandId: 'cmd_1', traceId: 'tr_1', target: { tabId: 7 }, jws: 'x.y.z' } });
  assert.equal(runtime.sent[1]?.id, 'a');
  assert.notEqual(runtime.sent[1]?.message.requestId, runtime.sent[0]?.message.requestId);
});

test('what keeps a command from its extension is said', async () => {
  const clock = new FakeClock();
  const told = async (runtime: Runtime | undefined, known?: string) => {
    const invoked = new Extension(runtime, clock).invoke(known === undefined ? envelope : { ...envelope, target: {} }, known === '' ? undefined : known).then(() => 'nothing', (error: Error) => error.message);
    clock.pass(9_999);
    clock.pass(1);
    return invoked;
  };
  assert.match(await told(undefined), /no extension/);
  assert.match(await told(new FakeRuntime(() => undefined)), /in 10 s/);
  assert.match(await told(new FakeRuntime(() => { throw new TypeError('Invalid extension id'); })), /Invalid extension id/);
  const gone = new FakeRuntime((_, __, answer) => {
    gone.lastError = { message: 'Receiving end does not exist.' };
    answer(undefined);
  });
  assert.match(await told(gone), /Receiving end/);
  assert.match(await told(new FakeRuntime((_, message, answer) => answer({ ok: false, requestId: message.requestId, error: { name: 'AuthError', message: 'Invalid signature' } }))), /AuthError.*Invalid signature/);
  assert.match(await told(new FakeRuntime((_, __, answer) => answer({ ok: true, requestId: 'another' }))), /no answer to this/);
  assert.match(await told(new FakeRuntime(() => undefined), ''), /names no extension/);
  assert.equal(clock.timers.size, 0);
});

test('the first extension that answers is found', async () => {
  const runtime = new FakeRuntime((id, message, answer) => answer(id === 'b' ? { ok: true, requestId: message.requestId, data: { browserId, version: '1', tabs: 'shared' } } : { ok: true, requestId: message.requestId, data: { browserId: 'br_1' } }));
  const extension = new Extension(runtime, new FakeClock());
  assert.deepEqual(await extension.find(['a', 'b', 'c'], { id: 'ses_1', name: 'demo' }), { extensionId: 'b', browserId });
  assert.deepEqual(runtime.sent.map(({ id }) => id), ['a', 'b']);
  assert.deepEqual(runtime.sent[0]?.message.session, { id: 'ses_1', name: 'demo' });
  assert.equal(await extension.find(['a'], { id: 'ses_1', name: 'demo' }), undefined);
  assert.equal(await new Extension(undefined, new FakeClock()).find(['b'], { id: 'ses_1', name: '' }), undefined);
  assert.equal(runtimeOf({}), undefined);
  assert.equal(runtimeOf({ chrome: { runtime: {} } }), undefined);
});

test('a port that ends is opened again, with growing pauses, once the extension has been told the session', async () => {
  const clock = new FakeClock();
  let opened = 0;
  let lost = (): void => undefined;
  let say = (_: unknown): void => undefined;
  const runtime = new FakeRuntime(() => undefined);
  runtime.connect = () => {
    opened++;
    return { postMessage: () => undefined, disconnect: () => undefined, onMessage: { addListener: (take) => (say = take) }, onDisconnect: { addListener: (end) => (lost = end) } };
  };
  const stop = new AbortController();
  const heard: number[][] = [];
  let looked = 0;
  let found: Found | undefined = { extensionId: 'b', browserId };
  const look = async () => {
    looked++;
    return found;
  };
  new Extension(runtime, clock).follow(look, 'ses_1', (tabs) => heard.push(tabs.map((tab) => tab.tabId)), stop.signal);
  const settle = async () => { for (let i = 0; i < 9; i++) await Promise.resolve(); };
  await settle();
  const tabs = [{ tabId: 7, sessionId: 'ses_1' }, { tabId: 8, sessionId: 'ses_2' }];
  say({ type: 'shared', browserId, tabs });
  say({ type: 'shared', browserId: 'br_other', tabs });
  say('x');
  assert.deepEqual(heard, [[7]]);
  for (const ms of [2_000, 4_000, 8_000]) {
    lost();
    await settle();
    clock.pass(ms - 1);
    await settle();
    const before = opened;
    clock.pass(1);
    await settle();
    assert.equal(opened, before + 1, `after ${ms} ms`);
    assert.equal(looked, opened);
  }

  // Loaded anew it may be another installation; while it is away there is no port.
  found = undefined;
  lost();
  await settle();
  clock.pass(16_000);
  await settle();
  assert.equal(opened, 4);
  found = { extensionId: 'b', browserId: 'br_other' };
  clock.pass(lookMs);
  await settle();
  assert.equal(opened, 5);
  say({ type: 'shared', browserId: 'br_other', tabs });
  assert.deepEqual(heard, [[7], [7]]);
  stop.abort();
});

test('what ran is put into words', () => {
  const ran: Ran = { commandId: 'cmd_1', by: 'agent', browserId, tabId: 7, method: 'Page.reload', status: 'signed', issuedAt: '2026-03-14T09:26:53.000Z', ttlMs: 15_000 };
  const sent = Date.parse(ran.issuedAt);
  assert.deepEqual(stateOf(ran, sent + 1), { tone: 'idle', text: 'under way' });
  assert.deepEqual(stateOf(ran, sent + 15_000), { tone: 'warn', text: 'no answer' });
  assert.deepEqual(stateOf({ ...ran, status: 'ok' }, sent), { tone: 'ok', text: 'done' });
  assert.deepEqual(stateOf({ ...ran, status: 'error', error: { message: 'No such tab', name: 'TargetError' } }, sent), { tone: 'bad', text: 'failed (TargetError)' });
  assert.deepEqual(stateOf({ ...ran, status: 'undelivered' }, sent), { tone: 'bad', text: 'not sent' });
  assert.match(timesOf({ ...ran, finishedAt: '2026-03-14T09:26:53.120Z' }), / · 120 ms$/);
  assert.match(timesOf({ ...ran, finishedAt: '2026-03-14T09:26:54.500Z' }), / · 1\.5 s$/);
  assert.equal(until('2026-03-14T09:36:53.000Z', sent), 'for 10 minutes');
  assert.equal(until(ran.issuedAt, sent), 'ends now');
  const tab = { user: 'u', name: 'n', browserId, tabId: 7, title: 'Mail', url: '', expiresAt: '' };
  assert.equal(tabOf(ran, [tab]), 'Mail');
  assert.equal(tabOf({ ...ran, tabId: 8 }, [tab]), 'tab 8');
});
