import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { base64Of, fromBase64, hexOf, keyOf, newCode, newHalf, nonceBytes, overhead, pair, seal } from './seal.ts';

// The vectors of seed 004, from the package that has them.
const vectors = JSON.parse(await readFile('../../../protocol/seal/testdata/sealed-sync.json', 'utf8')) as {
  key_derivation: Record<string, string & string[]>[];
  vectors: { id: string; key: string; nonce_hex: string; plaintext: string; sealed_b64: string; seed_status: number | null }[];
};
const paired = vectors.key_derivation.find((k) => k.id === 'K-paired') ?? {};
const bytes = (hex = ''): Uint8Array<ArrayBuffer> => Uint8Array.from(hex.match(/../g) ?? [], (two) => parseInt(two, 16));
const utf8 = new TextEncoder();

// half imports a private key of the vectors: PKCS #8 is 16 bytes before it.
const half = (hex = ''): Promise<CryptoKey> => crypto.subtle.importKey('pkcs8', bytes(`302e020100300506032b656e04220420${hex}`), { name: 'X25519' }, false, ['deriveBits']);

test('both sides of the vector make one key, however the code is typed', async () => {
  const source = await half(paired.source_x25519_private_hex);
  const sink = await half(paired.sink_x25519_private_hex);
  const publics = [fromBase64(paired.source_x25519_public_b64), fromBase64(paired.sink_x25519_public_b64)] as Uint8Array<ArrayBuffer>[];
  for (const code of paired.code_equivalents ?? []) {
    for (const [own, other] of [[source, publics[1]], [sink, publics[0]]] as const) {
      assert.equal((await pair(own, other ?? new Uint8Array(), code)).fingerprint, paired.fingerprint);
    }
  }
  assert.equal((await pair(source, publics[1] ?? new Uint8Array(), 'EHQE-STSS')).fingerprint, 'ecf82186'); // of 8 letters
});

test('a key or code that is none makes nothing', async () => {
  const own = await newHalf();
  const other = (await newHalf()).publicKey;
  const lowOrder = ['00'.repeat(32), `01${'00'.repeat(31)}`, 'ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f', 'e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800'];
  for (const key of lowOrder) await assert.rejects(pair(own.privateKey, bytes(key), newCode()), /low order/, key);
  for (const key of [other.slice(1), new Uint8Array(33)]) await assert.rejects(pair(own.privateKey, key, newCode()), /32 bytes/);
  for (const code of ['', 'EHQE', 'EHQE-STSS-UEI1', 'EHQE-STSS-UEIA-A', 'EHQE-STSS-UEI0']) await assert.rejects(pair(own.privateKey, other, code), /8 or 12/);
});

test('bodies are those of the vectors, for their nonces', async () => {
  const { getRandomValues } = crypto;
  let sealed = 0;
  for (const { id, key, nonce_hex, plaintext, sealed_b64, seed_status } of vectors.vectors) {
    const about = vectors.key_derivation.find((k) => k.id === key);
    if (about === undefined || seed_status === 401 || seed_status === null || nonce_hex === undefined || plaintext === undefined) continue;
    const secret = about.mode === 'paired' ? bytes(about.paired_key_hex) : utf8.encode(about.secret_utf8);
    const made = await keyOf(secret);
    crypto.getRandomValues = ((into: Uint8Array) => (into.set(bytes(nonce_hex)), into)) as typeof getRandomValues;
    try {
      assert.equal(base64Of(await seal(made.key, utf8.encode(plaintext))), sealed_b64, id);
    } finally {
      crypto.getRandomValues = getRandomValues;
    }
    sealed++;
  }
  assert.ok(sealed >= 15, `only ${sealed} vectors`);
});

test('no key can be read, each nonce is another, each code is one', async () => {
  const own = await newHalf();
  const { key } = await pair(own.privateKey, (await newHalf()).publicKey, newCode());
  assert.deepEqual([key.extractable, own.privateKey.extractable, key.usages], [false, false, ['encrypt']]);
  await assert.rejects(crypto.subtle.exportKey('raw', key));
  const bodies = await Promise.all([seal(key, utf8.encode('x')), seal(key, utf8.encode('x'))]);
  assert.equal(bodies[0]?.length, overhead + 1);
  assert.notEqual(hexOf(bodies[0]?.subarray(0, nonceBytes) ?? new Uint8Array()), hexOf(bodies[1]?.subarray(0, nonceBytes) ?? new Uint8Array()));
  assert.match(newCode(), /^[A-Z2-7]{4}-[A-Z2-7]{4}-[A-Z2-7]{4}$/);
  assert.notEqual(newCode(), newCode());
});

test('base64 has one spelling', () => {
  assert.deepEqual([...(fromBase64('AQI=') ?? [])], [1, 2]);
  for (const text of ['AQI', 'AQJ=', 'AQ==\n', '_-==', '====', '', 5]) assert.equal(fromBase64(text), undefined, String(text));
});
