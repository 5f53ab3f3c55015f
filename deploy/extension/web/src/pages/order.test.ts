import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Callbacks } from './callback.ts';
import { Intake } from './intake.ts';
import { KeySet } from './jws.ts';
import { Ledger } from './ledger.ts';
import { Memory } from './memory.ts';
import { sitesBut } from './sites.ts';

type Fields = Record<string, unknown>;

// A fault is something wrong with a command: with what is signed, the token, or the
// message around it.
interface Fault {
  what: string;
  answer: string;
  payload?: (p: Fields) => void;
  header?: Fields;
  token?: (jws: string) => string;
  message?: (m: Fields) => void;
}

const target = (p: Fields): Fields => p.target as Fields;
const op = (p: Fields): Fields => p.op as Fields;

const now = 1_730_000_000_000;
const elsewhere = 'br_' + 'b'.repeat(26);

// In the order in which they are looked for.
const faults: Fault[] = [
  { what: 'not well-formed', answer: 'RequestError: requestId', message: (m) => (m.requestId = '') },
  { what: 'too large a token', answer: 'AuthError: .*larger', token: (jws) => jws + 'A'.repeat(64 << 10) },
  { what: 'no closed profile', answer: 'AuthError: .*alg', header: { alg: 'HS256', kid: 'k1' } },
  { what: 'an unknown key', answer: 'AuthError: .*key', header: { alg: 'ES256', kid: 'k2' } },
  { what: 'a wrong signature', answer: 'AuthError: .*signature', token: (jws) => jws.slice(0, -4) + (jws.endsWith('AAAA') ? 'BBBA' : 'AAAA') },
  { what: 'another issuer', answer: 'AuthError: iss', payload: (p) => (p.iss = 'relay') },
  { what: 'another audience', answer: 'AuthError: .*audience', payload: (p) => (p.aud = 'sandbox-agent') },
  { what: 'another command beside it', answer: 'AuthError: .*another command', message: (m) => (m.commandId = 'cmd_other') },
  { what: 'another target beside it', answer: 'AuthError: .*another target', message: (m) => (m.target = { tabId: 8 }) },
  { what: 'another extension', answer: 'TargetError: .*extension', payload: (p) => (target(p).extensionId = 'theirs') },
  { what: 'another browser', answer: 'TargetError: .*browser', payload: (p) => (target(p).browserId = elsewhere) },
  { what: 'no session', answer: 'TargetError: .*session', payload: (p) => delete target(p).sessionId },
  { what: 'too early', answer: 'AuthError: .*future', payload: (p) => (p.issuedAt = now + 60_001) },
  { what: 'too late', answer: 'ExpiredError: ', payload: (p) => (p.issuedAt = now - 30_000 - 60_001) },
  { what: 'another callback', answer: 'AuthError: .*callback', payload: (p) => ((p.reply as Fields).url = 'https://a@relay.example/control/callback') },
  { what: 'another operation', answer: 'UnsupportedError: ', payload: (p) => (op(p).kind = 'browser.open') },
  { what: 'a method that isn’t listed', answer: 'AuthError: .*method', payload: (p) => (op(p).method = 'Network.getAllCookies') },
  { what: 'a member that isn’t listed', answer: 'AuthError: .*member', payload: (p) => (op(p).params = { expression: '1', includeCommandLineAPI: true }) },
];

// Those that can't stand beside each other in one token.
const apart = new Set(['no closed profile+an unknown key', 'too early+too late', 'a method that isn’t listed+a member that isn’t listed']);

const b64 = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');

// rig has a relay that answers callbacks with statuses, then with 204.
async function rig(...statuses: number[]) {
  const pair = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, ['sign', 'verify']);
  const { kty, crv, x, y } = await crypto.subtle.exportKey('jwk', pair.publicKey);
  const keys = (await KeySet.read(JSON.stringify({ keys: [{ kty, crv, x, y, kid: 'k1' }] }))) ?? KeySet.empty;
  const origins = ['https://relay.example'];
  let clock = now;
  const kept = new Memory();
  const ledger = new Ledger(kept, 'w', () => clock);
  const ran: string[] = [];
  const told: string[] = [];
  const intake = new Intake({
    here: () => ({ extensionId: 'ours', browserId: 'br_' + 'a'.repeat(26), tabs: 'shared', origins, allowed: sitesBut(origins), stopped: false, verify: (token) => keys.verify(token), now: () => clock }),
    ledger, callbacks: new Callbacks(ledger, (_, __, body) => (told.push(body), Promise.resolve(statuses.shift() ?? 204)), () => clock, () => Promise.resolve()),
    arm: () => Promise.resolve(), ran: () => undefined,
    run: (order) => {
      ran.push(order.commandId);
      return Promise.resolve({ status: 'ok', at: clock, durationMs: 0, result: { kind: 'cdp.send', tabId: order.target.tabId, method: order.method, response: {} } });
    },
  });
  const message = async (commandId: string, ...wrong: Fault[]): Promise<Fields> => {
    const payload: Fields = {
      iss: 'control-server', aud: 'browser-extension', commandId, traceId: 'tr_1', issuedAt: now, ttlMs: 30_000,
      target: { sessionId: 'ses_1', extensionId: 'ours', tabId: 7 },
      op: { kind: 'cdp.send', method: 'Runtime.evaluate', params: { expression: '1' } },
      reply: { url: 'https://relay.example/control/callback', callbackToken: 'ct_1' },
    };
    for (const { payload: change } of wrong) change?.(payload);
    const header = wrong.find((fault) => fault.header !== undefined)?.header ?? { alg: 'ES256', kid: 'k1', typ: 'command+jws' };
    const input = `${b64(header)}.${b64(payload)}`;
    const signature = await crypto.subtle.sign({ name: 'ECDSA', hash: 'SHA-256' }, pair.privateKey, new TextEncoder().encode(input));
    let jws = `${input}.${Buffer.from(signature).toString('base64url')}`;
    for (const { token } of wrong) jws = token?.(jws) ?? jws;
    const all: Fields = { type: 'driver', action: 'invoke', requestId: 'r', commandId, traceId: 'tr_1', target: { tabId: 7 }, jws };
    for (const { message: change } of wrong) change?.(all);
    return all;
  };
  const answer = async (commandId: string, ...wrong: Fault[]): Promise<string> => {
    const { ok, error } = await intake.invoke(await message(commandId, ...wrong));
    return ok ? 'accepted' : `${error?.name ?? ''}: ${error?.message ?? ''}`;
  };
  return { answer, ran, told, ledger, intake, message, kept, later: (ms: number) => (clock += ms) };
}

test('of two faults the one that is looked for earlier is the answer', async () => {
  const { answer, ran, kept } = await rig();
  let pairs = 0;
  for (const [i, first] of faults.entries()) {
    assert.match(await answer('cmd_1', first), new RegExp(`^${first.answer}`), first.what);
    for (const second of faults.slice(i + 1)) {
      if (apart.has(`${first.what}+${second.what}`)) continue;
      pairs++;
      assert.match(await answer('cmd_1', first, second), new RegExp(`^${first.answer}`), `${first.what}, and ${second.what}`);
    }
  }
  assert.equal(pairs, (faults.length * (faults.length - 1)) / 2 - apart.size);
  assert.deepEqual([ran, kept.kept.size], [[], 0], 'nothing ran, and nothing is noted');
});

test('an id that was seen gets its first answer only where all else is right', async () => {
  const { answer, ran, later } = await rig();
  assert.equal(await answer('cmd_1'), 'accepted');
  assert.equal(await answer('cmd_1'), 'accepted');
  for (const fault of faults) assert.match(await answer('cmd_1', fault), new RegExp(`^${fault.answer}`), fault.what);
  later(30_000 + 60_000);
  assert.equal(await answer('cmd_1'), 'accepted', 'the last moment');
  later(1);
  assert.match(await answer('cmd_1'), /^ExpiredError/);
  assert.deepEqual(ran, ['cmd_1']);
});

test('a hundred at once with one id: one run, a hundred equal answers', async () => {
  const { intake, message, ran } = await rig();
  const one = await message('cmd_1');
  const answers: string[] = [];
  for (let i = 0; i < 2; i++) {
    const many = await Promise.all(Array.from({ length: 50 }, () => intake.invoke(one)));
    answers.push(...many.map((a) => JSON.stringify(a)));
  }
  assert.deepEqual([new Set(answers).size, ran], [1, ['cmd_1']], answers[0]);
});

test('a command that is sent again is answered, doesn’t run, and is told again if no relay knew of it', async () => {
  const { answer, ran, told, ledger } = await rig(404);
  const turns = 1_000; // far more than it takes
  const settled = async (n: number) => {
    for (let turn = 0; told.length < n; turn++) {
      assert.ok(turn < turns, `told ${told.length} times, of ${n}`);
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
  assert.equal(await answer('cmd_1'), 'accepted');
  await settled(1);
  assert.equal(await answer('cmd_1'), 'accepted');
  await settled(2);
  while (await ledger.busy()) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(await answer('cmd_1'), 'accepted');
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual([ran, told.length], [['cmd_1'], 2]);
});
