import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isOurPage, readRequest } from './checks.ts';
import { foldName, integerOf, readArray, readObject, stringOf } from './json.ts';
import { Keys } from './keys.ts';
import { bytesOf, decode } from './jws.ts';
import { Lanes } from './lanes.ts';
import { Memory } from './memory.ts';
import { minutesLeft, summary, what } from './phrases.ts';
import { Bucket } from './rate.ts';
import { readSession, Shares } from './shares.ts';
import { sitesBut } from './sites.ts';
import { tell } from './told.ts';

test('JSON has one reading or none', () => {
  assert.deepEqual([...(readObject(' {"a": {"b":[1, {"c":"}\\""}]} ,"d":"x,y" }') ?? [])], [['a', '{"b":[1, {"c":"}\\""}]}'], ['d', '"x,y"']]);
  for (const text of ['', '[]', 'null', '{"a":1}{}', '\ufeff{}', '{"a":1,"a":2}', '{"a":1,"A":2}', '{"x":[{"s":1,"\u017f":2}]}', '{"\\ud800":1,"\\ud801":2}', `{"x":${'['.repeat(10_000)}${']'.repeat(10_000)}}`]) {
    assert.equal(readObject(text), undefined, text.slice(0, 40));
  }
  assert.ok(readObject(`{"x":${'['.repeat(9_999)}${']'.repeat(9_999)}}`));
  assert.deepEqual(readArray('[ {"a":1} , null,"x" ]'), ['{"a":1}', 'null', '"x"']);
  assert.deepEqual(readArray('[]'), []);
  assert.equal(stringOf('"\\ud800x"'), '\ufffdx');
  assert.deepEqual(['12', '-0', '1.0', '3e4', '9223372036854775808', 'null'].map(integerOf), [12, 0, undefined, undefined, undefined, undefined]);
  assert.equal(foldName('\u212aID'), foldName('kid'));
  assert.notEqual(foldName('\u0131d'), foldName('id'));
});

test('base64url has one spelling', () => {
  assert.deepEqual([...(bytesOf('_-8') ?? [])], [255, 239]);
  for (const text of ['A', 'AB', 'AA=', 'A A', '/+8', 'AAAAA']) assert.equal(bytesOf(text), undefined, text);
});

test('a message comes from the page of a relay itself', () => {
  const origins = ['https://relay.example'];
  const sender = { origin: 'https://relay.example', url: 'https://relay.example/#x', frameId: 0, documentLifecycle: 'active', tab: {} };
  assert.ok(isOurPage(sender, origins));
  for (const other of [{ origin: 'null' }, { origin: 'https://relay.example.evil' }, { url: 'https://relay.example.evil/' }, { url: undefined }, { frameId: 1 }, { documentLifecycle: 'prerender' }, { id: 'abc' }, { tab: undefined }]) {
    assert.equal(isOurPage({ ...sender, ...other }, origins), false, JSON.stringify(other));
  }
});

test('a request is well-formed', () => {
  const good = { action: 'invoke', requestId: 'r', commandId: 'c', traceId: 't', target: { tabId: 1 }, jws: 'x' };
  assert.equal(readRequest(good).jws, 'x');
  for (const bad of [{ requestId: '' }, { requestId: 'x'.repeat(129) }, { commandId: 1 }, { traceId: undefined }, { target: null }, { target: [] }, { target: { tabId: 0 } }, { target: { tabId: 1.5 } }, { target: { tabId: '1' } }, { jws: null }, { action: 'x' }]) {
    assert.throws(() => readRequest({ ...good, ...bad }), { name: 'RequestError' });
  }
});

test('no command touches what is ours', () => {
  const allowed = sitesBut(['https://relay.example', 'http://127.0.0.1:8080', 'https://previews.example', 'http://preview.localhost']);
  for (const url of ['https://shop.example/', 'http://127.0.0.1:8081/', 'https://norelay.example/', 'https://relay.example.com/']) assert.ok(allowed(url), url);
  for (const url of [
    undefined, '', 'about:blank', 'chrome://version', 'chrome-extension://a/b', 'file:///x', 'javascript:1', 'data:text/html,x', 'view-source:https://shop.example', 'blob:https://shop.example/1',
    'https://relay.example/', 'https://RELAY.example./x', 'http://relay.example/', 'https://a@relay.example/', 'https://x.previews.example/', 'http://a.b.preview.localhost:99/',
    'http://localhost:8080/', 'http://127.1:8080/', 'http://0x7f.1:8080/', 'http://[::1]:8080/', 'http://[::ffff:127.0.0.1]:8080/', 'http://127.0.0.2:8080/',
  ]) assert.equal(allowed(url), false, String(url));
});

test('a lane is in order and has an end', async () => {
  const lanes = new Lanes(3, 2);
  const [a, b] = [lanes.enter(1), lanes.enter(1)];
  assert.equal(lanes.enter(1), undefined);
  const other = lanes.enter(2);
  assert.equal(lanes.enter(3), undefined);
  await a?.turn;
  await other?.turn;
  let second = false;
  const then = b?.turn.then(() => (second = true));
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(second, false);
  a?.leave();
  a?.leave();
  await then;
  b?.leave();
  other?.leave();
  assert.equal(lanes.size, 0);
});

test('a page may say so much, and a clock that jumps back gives nothing', () => {
  const bucket = new Bucket(10, 2);
  const taken = (n: number, at: number): number => Array.from({ length: n }, () => bucket.take(at)).filter(Boolean).length;
  assert.deepEqual([taken(100, 0), taken(100, 1_000), taken(100, 0), taken(100, 500), taken(100, 1e9)], [10, 2, 0, 1, 10]);
});

const b64 = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');

async function signer(kid: string) {
  const pair = await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, ['sign', 'verify']);
  const { kty, crv, x, y } = await crypto.subtle.exportKey('jwk', pair.publicKey);
  const input = `${b64({ alg: 'ES256', kid })}.${b64({ a: 1 })}`;
  const signature = await crypto.subtle.sign({ name: 'ECDSA', hash: 'SHA-256' }, pair.privateKey, new TextEncoder().encode(input));
  return { jwks: JSON.stringify({ keys: [{ kty: 'future' }, { kty, crv, x, y, kid }] }), token: decode(`${input}.${Buffer.from(signature).toString('base64url')}`) };
}

test('keys are fetched once for all who wait, kept an hour, and asked for anew once in half a minute', async () => {
  const [old, young] = await Promise.all([signer('k1'), signer('k1')]);
  let now = 1e9;
  let fetched = 0;
  let published: string | Error = old.jwks;
  const area = new Memory();
  const fetch = async () => {
    fetched++;
    await new Promise((resolve) => setImmediate(resolve));
    if (published instanceof Error) throw published;
    return published;
  };
  const keys = () => new Keys({ area, builtIn: '', fetch, now: () => now });
  const first = keys();
  await Promise.all(Array.from({ length: 20 }, () => first.verify(old.token)));
  assert.equal(fetched, 1);
  await keys().verify(old.token); // the next worker has them
  now += 30_000;
  published = young.jwks;
  await Promise.all([first.verify(young.token), first.verify(young.token)]); // one refresh each at most, shared
  assert.equal(fetched, 2);
  for (let i = 0; i < 50; i++) await assert.rejects(first.verify(old.token), { name: 'AuthError' });
  assert.equal(fetched, 2, 'garbage asks for nothing');
  now += 30_000;
  await assert.rejects(first.verify(old.token), { name: 'AuthError' });
  assert.equal(fetched, 3);
  now += 3_600_001;
  published = new Error('down');
  await assert.rejects(first.verify(young.token), /can’t be had/);
  published = '{"keys":[]}';
  now += 30_000;
  await assert.rejects(first.verify(young.token), /can’t be had/);
  published = young.jwks;
  now += 30_000;
  await first.verify(young.token);
  now -= 10_000_000; // a clock that was wrong
  await first.verify(young.token);
  const built = new Keys({ area: new Memory(), builtIn: old.jwks, fetch: undefined, now: () => now });
  await built.verify(old.token);
  await assert.rejects(built.verify(young.token), { name: 'AuthError' });
});

test('shares are of sessions that were named, for an hour, and for the eyes of their pages', async () => {
  let now = 0;
  const area = new Memory();
  const shares = new Shares(area, () => now, () => undefined);
  assert.equal(await shares.add(1, 'ses_1', 1e9), false);
  for (let i = 0; i < 20; i++) await shares.know({ id: `ses_${i}`, name: 'n', origin: 'https://a' });
  assert.equal((await shares.sessions()).length, 16);
  assert.ok(await shares.add(1, 'ses_19', 1e9));
  assert.ok(await shares.add(2, 'ses_18', 1_000));
  assert.equal(await shares.add(2, 'ses_18', Number.NaN), false);
  assert.deepEqual([await shares.has(1, 'ses_19'), await shares.has(1, 'ses_18'), await shares.has(3, 'ses_19')], [true, false, false]);
  assert.deepEqual([(await shares.of('https://a')).length, (await shares.of('https://b')).length], [2, 0]);
  assert.equal((await new Shares(area, () => now, () => undefined).list()).length, 2, 'the next worker knows them');
  now = 1_000;
  assert.equal(await shares.has(2, 'ses_18'), false);
  now = 3_600_000;
  assert.equal(await shares.has(1, 'ses_19'), false);
  for (let i = 0; i < 40; i++) await shares.add(i + 1, 'ses_19', 1_000);
  assert.equal((await shares.list()).length, 32);
  await shares.end(() => true);
  assert.deepEqual(await shares.list(), []);
  assert.equal(readSession({ id: '../x', name: 'x' }, 'https://a'), undefined);
  assert.deepEqual(readSession({ id: 'ses_1', name: ' a\u202eb\n' }, 'https://a'), { id: 'ses_1', name: 'a b', origin: 'https://a' });
});

test('what is told of a tab is its address without what may be secret, and of ours nothing', () => {
  const share = { tabId: 1, sessionId: 's', name: 'n', expiresAt: 9 };
  const allowed = sitesBut(['https://relay.example']);
  assert.deepEqual(tell(share, { url: 'https://u:p@shop.example/a?card=4111#x', title: 'Shop' }, true, allowed), { tabId: 1, sessionId: 's', expiresAt: 9, attached: true, url: 'https://shop.example/a', title: 'Shop' });
  assert.deepEqual(tell(share, { url: 'https://relay.example/#token=1', title: 'console' }, false, allowed), { tabId: 1, sessionId: 's', expiresAt: 9, attached: false, url: '', title: '' });
});

test('the popup’s words', () => {
  const state = { stopped: false, attached: [], shares: [], tabs: 'shared' as const };
  assert.deepEqual([summary(state).text, summary({ ...state, attached: [1] }).text, summary({ ...state, stopped: true, attached: [1] }).text, summary({ ...state, tabs: 'all' }).text], ['Nothing is shared', 'Driving one tab', 'Stopped', 'All tabs']);
  assert.deepEqual([minutesLeft(59_000, 0), minutesLeft(3_600_000, 0)], ['one minute left', '60 minutes left']);
  assert.equal(what({ attached: false, last: { method: 'Page.reload', at: 0, failed: true } }, 200_000), 'Page.reload, which failed, 3 minutes ago');
});
