import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Memory } from '../pages/memory.ts';
import type { Cookie } from './cookie.ts';
import { ControlPlane } from './pairing.ts';
import { base64Of, fromBase64, newHalf, pair, type Half } from './seal.ts';
import { Sender, type World } from './sender.ts';
import { covers } from './site.ts';

const relay = 'https://relay.example';
const address = `${relay}/sync/sb_1/${'a'.repeat(26)}`;
const link = `${relay}/#token=ut_alice&session=ses_1`;

interface Body {
  sequence: number;
  cookies: { host_key: string; name: string; value: string }[];
  complete: boolean;
}

// A Rig is a sandbox, its control plane and its relay, and a browser with a sender.
class Rig {
  local = new Memory();
  area = new Memory();
  key: { pairing: string; key: CryptoKey } | undefined;
  cookies: Cookie[] = [];
  permitted = new Set<string>();
  given: string[] = [];
  now = 1_700_000_000_000;
  wakes: { at: number | undefined; left: boolean } = { at: undefined, left: false };
  bodies: Body[] = [];
  answers: (() => Response | Promise<Response>)[] = []; // the next ones; then 200
  ops: Record<string, unknown>[] = [];
  refuse: Record<string, object> = {}; // what the control plane answers to an op, by step
  wrong = false; // the fingerprint at the sandbox
  url = address;
  secretNow: CryptoKey | undefined; // opens, at the sandbox
  half: Half | undefined;
  sender: Sender;

  constructor() {
    this.sender = this.begin();
  }

  // begin is the next worker's.
  begin(): Sender {
    this.sender = new Sender(this.world());
    return this.sender;
  }

  world(): World {
    return {
      local: this.local, session: this.area,
      keys: {
        get: (pairing) => Promise.resolve(this.key?.pairing === pairing ? this.key.key : undefined),
        put: (pairing, key) => Promise.resolve(void (this.key = { pairing, key })),
        clear: () => Promise.resolve(void (this.key = undefined)),
      },
      cookies: (site) => Promise.resolve(this.cookies.filter(({ domain }) => covers(site, domain))),
      permitted: (site) => Promise.resolve(this.permitted.has(site)),
      giveBack: (site) => Promise.resolve(void (this.given.push(site), this.permitted.delete(site))),
      fetch: (async (url: string, init: RequestInit) => {
        assert.equal(url, address);
        this.bodies.push(await this.#open(init.body as Uint8Array<ArrayBuffer>));
        const kept = JSON.parse(this.local.kept.get('sync') ?? '{}') as { pace: { sequence: number } };
        assert.equal(kept.pace.sequence, this.bodies.at(-1)?.sequence, 'the sequence is stored before');
        return (this.answers.shift() ?? (() => new Response(`{"written":${this.bodies.at(-1)?.cookies.length ?? 0}}`)))();
      }) as typeof fetch,
      control: (token) => new ControlPlane('https://control.example', token, (url, init) => this.#control(url, init)),
      origins: [relay], controlPlane: 'https://control.example', name: 'Browser on Linux',
      now: () => this.now, random: () => 1, changed: () => undefined,
      wake: (at, left) => void (this.wakes = { at, left }),
    };
  }

  async #control(url: string, init: RequestInit): Promise<Response> {
    const { pathname, origin } = new URL(url);
    assert.equal(origin, 'https://control.example');
    assert.equal(init.redirect, 'error');
    assert.deepEqual((init.headers as Record<string, string>).Authorization, 'Bearer ut_alice');
    if (pathname === '/auth/me') return Response.json({ user: { id: 'u', name: 'Alice' }, sessions: [{ id: 'ses_1', dashboard: 'demo', sandbox: 'sb_1', capabilities: ['view', 'sync'] }, { id: 'ses_2', dashboard: 'other', sandbox: 'sb_2', capabilities: ['view'] }] });
    const { op } = JSON.parse(init.body as string) as { op: Record<string, string> };
    this.ops.push(op);
    const refused = this.refuse[op.step ?? op.kind ?? ''];
    if (refused !== undefined) return Response.json(refused);
    if (op.step === 'begin') {
      this.half = await newHalf();
      return Response.json({ status: 'ok', result: { pairing: 'pair_1', sinkPublicKey: base64Of(this.half.publicKey), sinkHostname: 'sink' } });
    }
    if (op.step === 'finish') return Response.json({ status: 'ok', result: await this.#finish(op) });
    return Response.json({ status: 'ok', result: {} });
  }

  async #finish(op: Record<string, string>): Promise<object> {
    const { privateKey } = this.half as Half;
    const theirs = fromBase64(op.sourcePublicKey) as Uint8Array<ArrayBuffer>;
    const { fingerprint } = await pair(privateKey, theirs, op.code ?? '');
    assert.equal(op.fingerprint, fingerprint);
    // The sandbox's own key opens: the derivation, with another use.
    const publicKey = await crypto.subtle.importKey('raw', theirs, { name: 'X25519' }, false, []);
    const shared = await crypto.subtle.deriveBits({ name: 'X25519', public: publicKey }, privateKey, 256);
    const material = await crypto.subtle.importKey('raw', shared, 'HKDF', false, ['deriveBits']);
    const text = new TextEncoder();
    const secret = await crypto.subtle.deriveBits({ name: 'HKDF', hash: 'SHA-256', salt: text.encode(op.code), info: text.encode('agentcookie-pair-v1') }, material, 256);
    this.secretNow = await crypto.subtle.importKey('raw', await crypto.subtle.digest('SHA-256', secret), 'AES-GCM', false, ['decrypt']);
    return { pairing: 'pair_1', url: this.url, fingerprint: this.wrong ? '00000000' : fingerprint };
  }

  async #open(body: Uint8Array<ArrayBuffer>): Promise<Body> {
    const plain = await crypto.subtle.decrypt({ name: 'AES-GCM', iv: body.subarray(0, 12) }, this.secretNow as CryptoKey, body.subarray(12));
    return JSON.parse(new TextDecoder().decode(plain)) as Body;
  }

  // paired is a rig whose person has paired, with sites.
  static async paired(...sites: string[]): Promise<Rig> {
    const rig = new Rig();
    await rig.sender.wish({ do: 'sign-in', link });
    await rig.sender.wish({ do: 'pair', session: 'ses_1' });
    assert.equal(rig.sender.state().problem, '');
    for (const site of sites) await rig.add(site);
    return rig;
  }

  async add(site: string): Promise<void> {
    await this.sender.wish({ do: 'add', site });
    this.permitted.add(site);
    await this.sender.wish({ do: 'added', site, granted: true });
  }

  // pass lets time pass until the next push, and has it.
  async pass(): Promise<void> {
    assert.ok(this.wakes.at !== undefined, 'nothing is to come');
    this.now = Math.max(this.now, this.wakes.at);
    await this.sender.tick();
  }
}

const cookie = (name: string, domain = 'a.example'): Cookie => ({ domain, hostOnly: true, name, value: `secret-${name}`, path: '/', secure: true, httpOnly: true, sameSite: 'lax', session: true });

test('paired, a site that is added is sent, what it changes, and what is gone goes', async () => {
  const rig = await Rig.paired();
  const { sessions, pairing } = rig.sender.state();
  assert.deepEqual(sessions, [{ id: 'ses_1', name: 'demo' }]); // where she may
  assert.match(pairing?.fingerprint ?? '', /^[0-9a-f]{8}$/);
  rig.cookies = [cookie('a'), cookie('b'), cookie('c', 'b.example')];
  await rig.pass();
  assert.equal(rig.bodies.length, 0, 'no site is named');
  await rig.add('a.example');
  await rig.pass();
  assert.deepEqual(rig.bodies[0]?.cookies.map(({ name }) => name), ['a', 'b']);
  assert.equal(rig.bodies[0]?.complete, true);
  assert.deepEqual([rig.sender.state().sites, rig.sender.state().last?.written], [[{ site: 'a.example', cookies: 2 }], 2]);

  await rig.sender.touched('.b.example'); // nobody's named it
  assert.equal(rig.wakes.at, undefined);
  await rig.sender.touched('x.a.example');
  await rig.pass(); // nothing is different
  assert.equal(rig.bodies.length, 1);
  rig.cookies.shift();
  await rig.sender.touched('a.example');
  await rig.pass();
  assert.deepEqual(rig.bodies[1]?.cookies.map(({ name }) => name), ['b']);
  await rig.sender.wish({ do: 'remove', site: 'a.example' });
  assert.deepEqual(rig.given, ['a.example']);
  await rig.pass();
  assert.deepEqual([rig.bodies[2]?.cookies, rig.bodies[2]?.complete], [[], true]);
  assert.ok(rig.bodies.every(({ sequence }, i) => sequence > (rig.bodies[i - 1]?.sequence ?? 0)));
});

test('a worker that dies at any moment sends it all the same, with a later number', async () => {
  const rig = await Rig.paired('a.example');
  rig.cookies = [cookie('a')];
  rig.answers = [() => new Promise<Response>(() => undefined)]; // no answer comes
  rig.now = rig.wakes.at ?? 0;
  void rig.sender.tick();
  while (rig.bodies.length === 0) await new Promise((resolve) => setImmediate(resolve));
  assert.ok(rig.wakes.left, 'an alarm brings the next worker');
  rig.now -= 10_000; // and the clock goes back
  await rig.begin().ready;
  await rig.pass();
  assert.equal(rig.bodies.length, 2);
  assert.ok((rig.bodies[1]?.sequence ?? 0) > (rig.bodies[0]?.sequence ?? 0));
  await rig.begin().ready;
  assert.deepEqual(rig.wakes, { at: undefined, left: false });
  await rig.sender.touched('a.example');
  await rig.begin().ready; // before it has settled
  await rig.pass();
  assert.equal(rig.bodies.length, 3);
});

test('what fails is tried again, or waits for what may mend it', async () => {
  const rig = await Rig.paired('a.example');
  rig.cookies = [cookie('a')];
  rig.answers = [() => new Response('', { status: 503, headers: { 'Retry-After': '30' } }), () => Promise.reject(new Error(`no way to ${address}`)), () => new Response('{}', { status: 409 })];
  await rig.pass();
  assert.equal((rig.wakes.at ?? 0) - rig.now, 30_000);
  assert.match(rig.sender.state().problem, /isn’t connected/);
  await rig.pass();
  assert.ok(!rig.sender.state().problem.includes('sync/'));
  await rig.pass(); // 409
  assert.deepEqual(rig.wakes, { at: undefined, left: false });
  await rig.sender.touched('a.example');
  await rig.pass();
  assert.deepEqual([rig.bodies.length, rig.sender.state().problem], [4, '']);
  rig.answers = [() => new Response('', { status: 404 })];
  rig.cookies = [cookie('b')];
  await rig.sender.touched('a.example');
  await rig.pass();
  await rig.sender.touched('a.example');
  assert.equal(rig.wakes.at, undefined, 'the pairing has ended');
  await rig.sender.wish({ do: 'send' });
  await rig.pass();
  assert.equal(rig.bodies.length, 6);
});

test('what may have arrived without an answer is taken back all the same', async () => {
  const lost = (): Promise<Response> => Promise.reject(new Error('no answer'));
  const rig = await Rig.paired('a.example');
  rig.cookies = [cookie('a')];
  await rig.pass();
  rig.cookies = [cookie('b')];
  rig.answers = [lost];
  await rig.sender.touched('a.example');
  await rig.pass();
  rig.cookies = [cookie('a')]; // as it was when an answer came
  await rig.sender.touched('a.example');
  await rig.pass();
  assert.deepEqual(rig.bodies.map(({ cookies }) => cookies[0]?.name), ['a', 'b', 'a']);

  const first = await Rig.paired('a.example');
  first.cookies = [cookie('a')];
  first.answers = [lost];
  await first.pass();
  await first.sender.wish({ do: 'remove', site: 'a.example' });
  await first.begin().ready;
  await first.pass();
  assert.deepEqual(first.bodies.at(-1)?.cookies, []);
});

test('a permission that is taken back takes its cookies back', async () => {
  const rig = await Rig.paired('a.example', 'b.example');
  rig.cookies = [cookie('a'), cookie('b', 'b.example')];
  await rig.pass();
  rig.permitted.delete('a.example');
  await rig.sender.permissions();
  await rig.pass();
  assert.deepEqual(rig.bodies[1]?.cookies.map(({ name }) => name), ['b']);
  assert.deepEqual(rig.sender.state().sites.map(({ site }) => site), ['b.example']);
});

test('only what the person has asked for, and Chrome permits, joins the list', async () => {
  const rig = await Rig.paired();
  rig.permitted.add('other.example');
  await rig.sender.permissions();
  await rig.sender.wish({ do: 'add', site: 'a.example' });
  await rig.sender.wish({ do: 'added', site: 'a.example', granted: false });
  rig.permitted.add('a.example');
  await rig.sender.permissions();
  assert.deepEqual(rig.sender.state().sites, []);
  await rig.sender.wish({ do: 'add', site: 'x.b.example' });
  rig.permitted.add('x.b.example');
  await rig.begin().permissions(); // Chrome's question has ended the popup, and the worker
  assert.deepEqual(rig.sender.state().sites, [{ site: 'x.b.example', cookies: 0 }]);
  await rig.add('b.example'); // which has the other
  assert.deepEqual(rig.sender.state().sites, [{ site: 'b.example', cookies: 0 }]);
  await rig.sender.wish({ do: 'add', site: '*' });
  assert.match(rig.sender.state().problem, /no site/);
});

test('a pairing that can’t be trusted is none', async () => {
  for (const [change, problem] of [
    [(r: Rig) => (r.wrong = true), /stands between/], [(r: Rig) => (r.url = address.replace(relay, 'https://evil.example')), /not built for/],
    [(r: Rig) => (r.refuse.begin = { status: 'ok', result: { pairing: 'pair_1', sinkPublicKey: base64Of(new Uint8Array(32)) } }), /low order/],
    [(r: Rig) => (r.refuse.finish = { status: 'error', error: { message: 'no \u202e' } }), /no ⟨U\+202E⟩/],
  ] as const) {
    const rig = new Rig();
    await rig.sender.wish({ do: 'pair', session: 'ses_1' });
    assert.match(rig.sender.state().problem, /Sign in first/);
    await rig.sender.wish({ do: 'sign-in', link });
    change(rig);
    await rig.sender.wish({ do: 'pair', session: 'ses_1' });
    assert.match(rig.sender.state().problem, problem);
    assert.deepEqual([rig.sender.state().pairing, rig.key], [null, undefined]);
  }
  const full = new Rig();
  await full.sender.wish({ do: 'sign-in', link });
  full.local.full = true;
  await full.sender.wish({ do: 'pair', session: 'ses_1' });
  assert.equal(full.ops.at(-1)?.kind, 'sync.unpair'); // what can't be kept ends
  assert.equal(full.sender.state().pairing, null);
});

test('stopped, nothing is left here or there; where the sandbox is away it may be forgotten', async () => {
  const rig = await Rig.paired('a.example');
  rig.cookies = [cookie('a')];
  await rig.pass();
  rig.refuse['sync.unpair'] = { status: 'unknown' };
  await rig.sender.wish({ do: 'stop' });
  assert.ok(rig.sender.state().mayForget && rig.sender.state().pairing !== null);
  rig.refuse['sync.unpair'] = { status: 'error', error: { name: 'TargetError', message: 'no such pairing' } };
  await rig.sender.wish({ do: 'stop' });
  assert.deepEqual([rig.sender.state().pairing, rig.key, rig.given, rig.wakes.at], [null, undefined, ['a.example'], undefined]);
  assert.ok(!JSON.stringify([...rig.local.kept]).includes(address));

  const again = await Rig.paired('a.example');
  await again.sender.wish({ do: 'sign-out' });
  await again.sender.wish({ do: 'stop' });
  assert.match(again.sender.state().problem, /Sign in first/);
  await again.sender.wish({ do: 'forget' });
  assert.deepEqual([again.sender.state().pairing, again.sender.state().mayForget], [null, false]);
});

test('neither storage, but for the address, nor the popup has a secret', async () => {
  const rig = await Rig.paired('a.example');
  rig.cookies = [cookie('a')];
  await rig.pass();
  const told = JSON.stringify(rig.sender.state());
  const kept = JSON.stringify([...rig.local.kept]);
  for (const secret of ['secret-a', 'ut_alice', String(rig.ops.find(({ step }) => step === 'finish')?.code)]) {
    assert.ok(!told.includes(secret) && !kept.includes(secret), secret);
  }
  assert.ok(!told.includes(address) && kept.includes(address));
});
