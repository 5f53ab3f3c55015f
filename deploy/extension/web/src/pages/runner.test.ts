import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Order } from './checks.ts';
import { run, type Surroundings, type Tab } from './runner.ts';
import { sitesBut } from './sites.ts';

const order = (changes: Partial<Order> = {}): Order => ({
  commandId: 'cmd_1', traceId: 'tr_1', issuedAt: 0, ttlMs: 30_000, op: new Map(), method: 'Runtime.evaluate', params: { expression: '1' },
  target: { tabId: 7, sessionId: 'ses_1', sandboxId: '', ptyId: '', extensionId: '', browserId: '' }, reply: { url: '', callbackToken: '' }, ...changes,
});

// around is a browser in which a tab is at these addresses, one look after the other.
function around(looks: (string | Tab | Error)[], changes: Partial<Surroundings['browser']> & Partial<Omit<Surroundings, 'browser'>> = {}) {
  const did: string[] = [];
  let look = 0;
  const { tab, attach, send, detach, ...rest } = changes;
  const s: Surroundings = {
    browser: {
      tab: tab ?? (() => {
        const at = looks[Math.min(look++, looks.length - 1)];
        return at instanceof Error ? Promise.reject(at) : Promise.resolve(typeof at === 'string' ? { url: at } : (at ?? {}));
      }),
      attach: async (id) => (did.push('attach'), attach?.(id)),
      send: async (id, method, params) => (did.push(method), send === undefined ? { result: { value: 1 } } : send(id, method, params)),
      detach: async (id) => (did.push('detach'), detach?.(id)),
    },
    allowed: sitesBut(['https://relay.example']), ours: ['https://relay.example'], shared: () => Promise.resolve(true), stopped: () => false,
    ended: () => new Promise(() => undefined), attached: () => undefined, now: () => 0, late: () => ({ wait: new Promise(() => undefined), cancel: () => undefined }), ...rest,
  };
  return { s, did };
}

const site = 'https://shop.example/';

test('attach, look, send, look, detach', async () => {
  const { s, did } = around([site]);
  const outcome = await run(order(), s);
  assert.deepEqual(outcome, { status: 'ok', at: 0, durationMs: 0, result: { kind: 'cdp.send', tabId: 7, method: 'Runtime.evaluate', response: { result: { value: 1 } } } });
  assert.deepEqual(did, ['attach', 'Fetch.enable', 'Runtime.evaluate', 'detach']);
});

const failed = async (looks: (string | Tab | Error)[], changes: Parameters<typeof around>[1], says: RegExp, want: string[], change: Partial<Order> = {}): Promise<void> => {
  const { s, did } = around(looks, changes);
  const outcome = await run(order(change), s);
  assert.equal(outcome.status, 'error');
  assert.match(outcome.status === 'error' ? `${outcome.error.name}: ${outcome.error.message}` : '', says);
  assert.deepEqual(did, want);
};

test('where the tab is wrong before, nothing is attached; later, nothing is told, and it is detached', async () => {
  for (const wrong of ['https://relay.example/', 'chrome://settings', 'file:///etc/passwd', '', { url: site, discarded: true }, { url: site, pendingUrl: 'https://relay.example/x' }, new Error('No tab with id: 7.')]) {
    await failed([wrong], {}, /^TargetError/, []);
    await failed([site, wrong], {}, /^TargetError/, ['attach', 'Fetch.enable', 'detach']);
    await failed([site, site, wrong], {}, /^TargetError/, ['attach', 'Fetch.enable', 'Runtime.evaluate', 'detach']);
  }
});

test('what Chrome refuses is told, and it is detached whatever happens', async () => {
  await failed([site], { attach: () => Promise.reject(new Error('Another debugger is already attached to the tab with id: 7.')) }, /^TargetError: Another debugger/, ['attach']);
  const refuse = (_: number, method: string) => (method === 'Fetch.enable' ? Promise.resolve() : Promise.reject(new Error('{"code":-32000,"message":"Cannot find context"}')));
  await failed([site], { send: refuse, detach: () => Promise.reject(new Error('gone')) }, /^TargetError: Cannot find context$/, ['attach', 'Fetch.enable', 'Runtime.evaluate', 'detach']);
  await failed([site], { send: () => Promise.reject(new Error('no')) }, /guarded/, ['attach', 'Fetch.enable', 'detach']);
});

test('a tab that isn’t shared, or no longer, a person who has stopped all, a time that is over', async () => {
  await failed([site], { shared: () => Promise.resolve(false) }, /not shared/, []);
  let asked = 0;
  await failed([site], { shared: () => Promise.resolve(asked++ === 0) }, /not shared.*any more/, ['attach', 'Fetch.enable', 'detach']);
  await failed([site], { stopped: () => true }, /stopped/, []);
  await failed([site], { now: () => 90_001 }, /^ExpiredError/, []);
  await failed([site], { ended: () => Promise.resolve('the tab was closed'), send: () => new Promise(() => undefined) }, /^TargetError: the tab was closed/, ['attach', 'Fetch.enable', 'detach']);
});

test('what was cut off is unknown: it may have been done', async () => {
  const { s, did } = around([site], { send: (_, method) => (method === 'Fetch.enable' ? Promise.resolve() : Promise.reject(new Error('Detached while handling command.'))) });
  assert.equal((await run(order(), s)).status, 'unknown');
  assert.equal(did.at(-1), 'detach');
});

test('an answer that doesn’t come in time is unknown; a call that wasn’t sent has expired', async () => {
  let expire = (): void => undefined;
  const late = () => ({ wait: new Promise<void>((resolve) => (expire = resolve)), cancel: () => undefined });
  const { s, did } = around([site], { late, send: (_, method) => (method === 'Fetch.enable' ? Promise.resolve() : (expire(), new Promise(() => undefined))) });
  assert.equal((await run(order(), s)).status, 'unknown');
  assert.equal(did.at(-1), 'detach');
  await failed([site], { late, send: () => (expire(), new Promise(() => undefined)) }, /^ExpiredError/, ['attach', 'Fetch.enable', 'detach']);
});

test('the tab’s history leads to no place of ours, and tells of none', async () => {
  const history = { currentIndex: 1, entries: [{ id: 1, url: 'https://relay.example/#token=ut_1', userTypedURL: 'https://relay.example/#token=ut_1', title: 'ut_1' }, { id: 2, url: site, title: 'Shop' }] };
  const send = (_: number, method: string) => Promise.resolve(method === 'Page.getNavigationHistory' ? history : {});
  const { s } = around([site], { send });
  const told = await run(order({ method: 'Page.getNavigationHistory', params: {} }), s);
  assert.ok(!JSON.stringify(told).includes('ut_1') && JSON.stringify(told).includes('Shop'));
  await failed([site], { send }, /history/, ['attach', 'Fetch.enable', 'Page.getNavigationHistory', 'detach'], { method: 'Page.navigateToHistoryEntry', params: { entryId: 1 } });
  assert.equal((await run(order({ method: 'Page.navigateToHistoryEntry', params: { entryId: 2 } }), around([site], { send }).s)).status, 'ok');
});
