import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NotTaken, post, read, refusal, sinkOf } from './answer.ts';
import { bound, envelope, gather, micros, setOf, wireOf, type Cookie } from './cookie.ts';
import { again, ago, cameOf, notes, summary } from './phrases.ts';
import { choices, covers, isSite, oursBy, patterns } from './site.ts';

const cookie = (more: Partial<Cookie> = {}): Cookie => ({
  domain: 'a.example', hostOnly: true, name: 'n', value: 'v', path: '/', secure: true, httpOnly: true, sameSite: 'lax', session: true, ...more,
});
const lasting = { session: false, expirationDate: 1_800_000_000 };
const now = 1_700_000_000_000;

test('a cookie is sent as Chromium’s database has it', () => {
  assert.deepEqual(wireOf(cookie()), {
    host_key: 'a.example', name: 'n', value: 'v', path: '/', expires_utc: 0n, is_secure: 1, is_httponly: 1, last_access_utc: 0,
    has_expires: 0, is_persistent: 0, priority: 1, samesite: 1, source_scheme: 0, source_port: -1,
  });
  for (const domain of ['.a.example', 'a.example']) {
    assert.equal(wireOf(cookie({ domain, hostOnly: false })).host_key, '.a.example');
    assert.equal(wireOf(cookie({ domain })).host_key, 'a.example');
  }
  assert.deepEqual(['no_restriction', 'lax', 'strict', 'unspecified', 'new'].map((sameSite) => wireOf(cookie({ sameSite })).samesite), [0, 1, 2, -1, -1]);
  const { has_expires, is_persistent, expires_utc } = wireOf(cookie(lasting));
  assert.deepEqual([has_expires, is_persistent, expires_utc], [1, 1, 13_444_473_600_000_000n]);
  assert.deepEqual([wireOf(cookie({ secure: false })).is_secure, wireOf(cookie({ httpOnly: false })).is_httponly], [0, 0]);
});

test('times are exact to the microsecond, beyond 2^53', () => {
  for (const after of [0n, 1n, 999_999n, 123_456n, 500_001n]) {
    const unix = 1_755_555_555_000_000n + after;
    assert.equal(micros(Number(unix) / 1e6), unix + 11_644_473_600_000_000n);
  }
  const text = envelope('h', 7, [wireOf(cookie({ session: false, expirationDate: 1_755_555_555.123457 }))]);
  assert.match(text, /"expires_utc":13400029155123457[,}]/); // odd: no number of JavaScript's
  assert.deepEqual(Object.keys(JSON.parse(text) as object), ['protocol_version', 'source_hostname', 'sequence', 'cookies', 'complete']);
});

test('what has no place in an envelope, or is ours, stays here and is counted', () => {
  const list = [
    cookie(), cookie({ value: 'later' }), // of two with one id the later counts
    cookie({ name: 'p', partitionKey: { topLevelSite: 'https://b.example' } }),
    cookie({ name: 'e', session: false, expirationDate: now / 1000 }), cookie({ name: 'just', session: false, expirationDate: now / 1000 + 1 }),
    cookie({ name: 'l', value: 'ä'.repeat(2_048) }), cookie({ name: 'll', value: 'ä'.repeat(2_047) }),
    cookie({ name: 'o', domain: 'relay.a.example' }), cookie({ name: 'o', domain: '.relay.a.example', hostOnly: false }), cookie({ name: 'o', domain: 'preview.relay.a.example' }),
  ];
  const { cookies, counts, leftOut } = gather([{ site: 'a.example', cookies: list }, { site: 'empty.example', cookies: [] }], oursBy(['https://relay.a.example', 'http://127.0.0.1:1']), now);
  assert.deepEqual(cookies.map(({ name, value }) => `${name}=${value.slice(0, 5)}`), ['n=later', 'just=v', `ll=${'ä'.repeat(5)}`]);
  assert.deepEqual([counts, leftOut], [{ 'a.example': 3, 'empty.example': 0 }, { partitioned: 1, expired: 1, tooLong: 1 }]);
  const [a, b] = [wireOf(cookie()), wireOf(cookie({ name: 'm' }))];
  assert.equal(setOf([a, b]), setOf([b, a]));
  assert.notEqual(setOf([a, b]), setOf([a, { ...b, value: 'w' }]));
});

test('what may live in one browser alone is said', () => {
  const soon = { session: false, expirationDate: now / 1000 + 899 };
  const list = [
    cookie({ domain: '.google.com', hostOnly: false }), cookie({ domain: 'mail.google.com', ...soon }), cookie({ domain: 'notgoogle.com' }),
    cookie(soon), cookie({ ...soon, secure: false }), cookie({ ...soon, expirationDate: now / 1000 + 901 }), cookie(),
  ].map(wireOf);
  assert.deepEqual(bound(list, now), { google: 2, soon: 1 });
});

test('sites are what a person may name', () => {
  const ours = ['https://relay.example', 'http://127.0.0.1:8080'];
  assert.deepEqual(choices('https://gist.github.com/x?y', ours), ['github.com', 'gist.github.com']);
  assert.deepEqual(choices('https://www.shop.co.uk/', ours), ['shop.co.uk', 'www.shop.co.uk']);
  assert.deepEqual(choices('https://ann.github.io/', ours), ['ann.github.io']);
  assert.deepEqual(choices('http://127.0.0.2:9000/', ours), ['127.0.0.2']);
  assert.deepEqual(choices('http://x.shop.localhost:9000/', ours), ['shop.localhost', 'x.shop.localhost']);
  assert.deepEqual(choices('http://[::1]:9000/', ours), ['[::1]']);
  for (const address of [undefined, 'chrome://settings', 'file:///etc/passwd', 'https://relay.example/', 'https://x.relay.example/', 'http://127.0.0.1:8080/', 'http://127.0.0.1:9000/', 'https://co.uk/', 'https://com/']) {
    assert.deepEqual(choices(address, ours), [], address);
  }
  for (const name of ['', 'com', 'co.uk', 'github.io', '*', '*.a.example', 'a.example/*', 'A.example', 'a..example', '.a.example', 'bücher.example', '1.2.3', 5]) assert.equal(isSite(name), false, String(name));
  assert.deepEqual([patterns('a.example'), patterns('127.0.0.1'), patterns('localhost')], [['*://*.a.example/*'], ['*://127.0.0.1/*'], ['*://localhost/*']]);
  assert.deepEqual(['a.example', '.a.example', 'b.a.example', 'xa.example', 'example'].map((host) => covers('a.example', host)), [true, true, true, false, false]);
  assert.equal(covers('127.0.0.1', 'x.127.0.0.1'), false);
});

test('an address is at a relay, and nowhere else', () => {
  const origins = ['https://relay.example', 'http://127.0.0.1:8080'];
  const path = `/sync/sb_1/${'a2'.repeat(13)}`;
  for (const origin of origins) assert.equal(sinkOf(origin + path, origins), origin + path);
  for (const url of [`https://relay.example.evil${path}`, `https://relay.example@evil${path}`, `https://u@relay.example${path}`, `http://relay.example${path}`, `https://relay.example${path}?x`, `https://relay.example${path}#x`,
    `https://relay.example${path}a`, `https://relay.example/sync/../${path}`, `https://relay.example/sync/sb_1/%61`, `https://relay.example//evil${path}`, `https://relay.example${path}\n`, 5, undefined]) {
    assert.equal(sinkOf(url, origins), undefined, String(url));
  }
});

test('an answer says whether another try is worth it', () => {
  const of = (status: number, text = '', after: string | null = null) => ((r) => [r.again, r.afterMs])(refusal(status, text, after));
  assert.deepEqual([401, 404, 400, 403, 409, 413, 418].map((s) => of(s)[0]), ['asked', 'asked', 'change', 'change', 'change', 'change', 'change']);
  assert.deepEqual([429, 500, 501, 502, 503, 507].map((s) => of(s)), Array(6).fill(['later', 0]));
  assert.deepEqual([of(503, '', '10'), of(429, '', '-1'), of(429, '', 'soon'), of(429, '', '99999')], [['later', 10_000], ['later', 0], ['later', 0], ['later', 0]]);
  assert.match(refusal(400, '{"error":{"message":"no \\u202egood"}}', null).message, /no ⟨U\+202E⟩good/);
  assert.ok(refusal(500, JSON.stringify({ error: 'x'.repeat(9_999) }), null).message.length < 400);
});

test('what a sandbox says is read as far as it is sound', () => {
  assert.deepEqual(read('{"written":3,"dropped":"many","removed":-1,"refused":[{"host_key":"a","name":"n","reason":"r"},null,{"name":5}]}'), {
    written: 3, dropped: 0, removed: 0, refusals: 3,
    refused: [{ host: 'a', name: 'n', reason: 'r' }, { host: '', name: '', reason: '' }, { host: '', name: '', reason: '' }],
  });
  assert.equal(read(`{"refused":[${Array(500).fill('{}').join(',')}]}`).refused.length, 20);
  assert.throws(() => read('<html>'), NotTaken);
});

test('a push follows no redirect, and an error names no address', async () => {
  let seen: RequestInit | undefined;
  const secret = 'https://relay.example/sync/sb_1/secret';
  await assert.rejects(
    post(secret, new Uint8Array(1), (_, init) => {
      seen = init;
      return Promise.reject(new TypeError(`Failed to fetch ${secret}`));
    }),
    (error: NotTaken) => error.again === 'later' && !error.message.includes('secret'),
  );
  assert.deepEqual([seen?.redirect, seen?.credentials, seen?.method, seen?.referrerPolicy], ['error', 'omit', 'POST', 'no-referrer']);
  await assert.rejects(post(secret, new Uint8Array(1), () => Promise.resolve(new Response('x'.repeat(100_000)))), /can’t be read/);
});

test('what the popup says', () => {
  const state = { pairing: { session: 's', fingerprint: 'f', warning: '', pairedAt: 0 }, sites: [{ site: 'a', cookies: 1 }], busy: '' as const, failed: false, signedIn: true };
  assert.equal(summary(state).text, '1 site kept signed in');
  assert.deepEqual(summary({ ...state, failed: true }), { text: 'Not sent', tone: 'busy' });
  assert.equal(summary({ ...state, pairing: null, signedIn: false }).text, 'Signed out');
  assert.equal(summary({ ...state, busy: 'sending' }).text, 'Sending');
  const last = { at: 0, cookies: 5, written: 3, dropped: 1, removed: 2, refusals: 21, refused: [{ host: 'a', name: 'n', reason: 'expired' }], leftOut: { partitioned: 1, expired: 0, tooLong: 2 }, bound: { google: 1, soon: 2 } };
  assert.equal(cameOf(last), '5 cookies sent · 3 written · 1 kept out by the sandbox’s policy · 21 refused · 2 removed there');
  assert.equal(notes(last).length, 6);
  assert.deepEqual([0, 59_000, 60_000, 3_600_000, 200 * 3_600_000].map((ms) => ago(0, ms)), ['Just now', 'Just now', '1 minute ago', '1 hour ago', '8 days ago']);
  assert.deepEqual([again(0, 5), again(5_000, 0), again(600_000, 0)], ['', 'It is tried again in 5 seconds.', 'It is tried again in 10 minutes.']);
});
