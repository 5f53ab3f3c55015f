import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Callbacks } from './callback.ts';
import type { Order } from './checks.ts';
import { Intake } from './intake.ts';
import { KeySet } from './jws.ts';
import { Ledger } from './ledger.ts';
import { Memory } from './memory.ts';
import { sitesBut } from './sites.ts';

const origins = ['https://relay.example'];
const b64 = (value: string): string => Buffer.from(value).toString('base64url');

// A generator of numbers that repeats for one seed.
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

// A relay that keeps, changes, replays, reorders and reroutes everything, while
// workers die and clocks pass: no command runs twice, changed or elsewhere.
test('a hostile relay gets nothing run but what was signed, once', async () => {
  const rounds = Number(process.env.FAIRLEAD_PAGES_ROUNDS ?? 2_000);
  const seed = Number(process.env.FAIRLEAD_PAGES_SEED ?? Date.now() % 1e9);
  console.log(`FAIRLEAD_PAGES_SEED=${seed} FAIRLEAD_PAGES_ROUNDS=${rounds}`);
  const random = numbers(seed);
  const pair = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, ['sign', 'verify']);
  const { kty, crv, x, y } = await crypto.subtle.exportKey('jwk', pair.publicKey);
  const keys = (await KeySet.read(JSON.stringify({ keys: [{ kty, crv, x, y, kid: 'k1' }] }))) ?? KeySet.empty;

  let now = 1_730_000_000_000;
  const area = new Memory();
  const ran = new Map<string, Order[]>();
  const posted = new Set<string>();
  const fates = new Map<string, string>();
  // A worker that is dead does nothing any more: what it waits for never comes.
  let alive = { is: true };
  const work = (name: string): Intake => {
    const mine = (alive = { is: true });
    const living = <T>(what: () => Promise<T>): Promise<T> => (mine.is ? what().then((value) => (mine.is ? value : new Promise<T>(() => undefined))) : new Promise<T>(() => undefined));
    const ledger = new Ledger({ get: (names) => living(() => area.get(names)), set: (items) => living(() => area.set(items)), remove: (names) => living(() => area.remove(names)) }, name, () => now);
    const callbacks = new Callbacks(ledger, (_, __, body) => living(() => {
      const { commandId, status } = JSON.parse(body) as { commandId: string; status: string };
      assert.ok(!posted.has(commandId) || fates.get(commandId) === status, 'a fate doesn’t change once it was told');
      posted.add(commandId);
      fates.set(commandId, status);
      return Promise.resolve(random(3) === 0 ? 503 : 204);
    }), () => now, () => new Promise((resolve) => setImmediate(resolve)));
    void callbacks.resume();
    const here = () => ({ extensionId: 'ours', browserId: 'br_1', tabs: 'shared' as const, origins, allowed: sitesBut(origins), stopped: false, verify: (token: Parameters<KeySet['verify']>[0]) => keys.verify(token), now: () => now });
    return new Intake({
      here, ledger, callbacks, arm: () => Promise.resolve(), ran: () => undefined,
      run: (order) => living(async () => {
        ran.set(order.commandId, [...(ran.get(order.commandId) ?? []), order]);
        if (random(4) === 0) await new Promise(() => undefined); // its worker dies before it ends
        return { status: 'ok', at: now, durationMs: 0, result: { kind: 'cdp.send', tabId: order.target.tabId, method: order.method, response: {} } };
      }),
    });
  };

  let worker = work('w0');
  const known: { message: Record<string, unknown>; signed: Record<string, unknown> }[] = [];
  const signed = new Map<string, Record<string, unknown>>();
  const sign = async (n: number): Promise<void> => {
    const payload = {
      iss: 'control-server', aud: 'browser-extension', commandId: `cmd_${n}`, traceId: `tr_${n}`, issuedAt: now + random(2_000) - 1_000, ttlMs: 1_000 + random(30_000),
      target: { sessionId: 'ses_1', extensionId: 'ours', browserId: random(9) === 0 ? 'br_2' : 'br_1', tabId: 1 + random(5) },
      op: { kind: 'cdp.send', method: 'Runtime.evaluate', params: { expression: `run(${n})` } }, reply: { url: `${origins[0]}/control/callback`, callbackToken: `ct_${n}` },
    };
    const input = `${b64('{"alg":"ES256","kid":"k1","typ":"command+jws"}')}.${b64(JSON.stringify(payload))}`;
    const signature = Buffer.from(await crypto.subtle.sign({ name: 'ECDSA', hash: 'SHA-256' }, pair.privateKey, new TextEncoder().encode(input))).toString('base64url');
    known.push({ signed: payload, message: { type: 'driver', action: 'invoke', requestId: 'r', commandId: payload.commandId, traceId: payload.traceId, target: { tabId: payload.target.tabId }, jws: `${input}.${signature}` } });
    signed.set(payload.commandId, payload);
  };
  const pick = () => known[Math.max(0, known.length - 1 - random(40))]?.message ?? {};
  const hostile = (): Record<string, unknown> => {
    const message = { ...pick() };
    const parts = String(message.jws).split('.');
    const other = String(pick().jws).split('.');
    switch (random(7)) {
      case 0: message.target = { tabId: 1 + random(5) }; break;
      case 1: message.commandId = `cmd_${random(rounds)}`; break;
      case 2: message.jws = [parts[0], other[1], parts[2]].join('.'); break;
      case 3: message.jws = [parts[0], b64(Buffer.from(parts[1] ?? '', 'base64url').toString().replace('run(', 'steal(')), parts[2]].join('.'); break;
      case 4: message.jws = String(message.jws).split('').map((c, i, all) => (i === random(all.length) ? 'A' : c)).join(''); break;
      case 5: message.jws = pick().jws; break;
      default:
    }
    return message;
  };
  const under: Promise<unknown>[] = [];
  for (let n = 0; n < rounds; n++) {
    if (random(3) === 0 || known.length === 0) await sign(n);
    for (let i = random(4); i >= 0; i--) under.push(worker.invoke(hostile()));
    if (random(3) === 0) await Promise.race([Promise.all(under.splice(0)), new Promise((resolve) => setImmediate(resolve))]);
    if (random(25) === 0) {
      await new Promise((resolve) => setTimeout(resolve, 1)); // a worker ends between its turns
      alive.is = false;
      worker = work(`w${n}`);
    }
    now += random(300);
  }
  alive.is = false;
  assert.ok(ran.size > rounds / 10, `${ran.size} have run`);
  for (const [id, orders] of ran) {
    const payload = signed.get(id) as { target: { tabId: number; browserId: string }; op: { params: object } } | undefined;
    assert.equal(orders.length, 1, `${id} ran ${orders.length} times`);
    assert.deepEqual([orders[0]?.target.tabId, orders[0]?.target.browserId, orders[0]?.params], [payload?.target.tabId, 'br_1', payload?.op.params], id);
  }
});
