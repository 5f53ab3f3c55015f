// What keeps cookies from whoever carries them (seed 004), as package protocol/seal
// has it: a key made of two X25519 keys and a code, and bodies sealed with it. Pure,
// but for chance.

import { codeOf } from '@fairlead/console/sync/model.ts';

export const nonceBytes = 12;
export const overhead = nonceBytes + 16; // a nonce before, GCM's tag behind
export const publicBytes = 32;

const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';
const codeLetters = 12; // 60 bits
const info = 'agentcookie-pair-v1';
const curve = { name: 'X25519' };
const utf8 = new TextEncoder();

type Bytes = Uint8Array<ArrayBuffer>;

// newCode is a random pairing code in its canonical form.
export const newCode = (): string => codeOf(Array.from(crypto.getRandomValues(new Uint8Array(codeLetters)), (byte) => alphabet[byte & 31]).join(''));

// A Half is one side's key. Its private half can't be read, not even here.
export interface Half {
  privateKey: CryptoKey;
  publicKey: Bytes;
}

export async function newHalf(): Promise<Half> {
  const pair = (await crypto.subtle.generateKey(curve, false, ['deriveBits'])) as CryptoKeyPair;
  return { privateKey: pair.privateKey, publicKey: new Uint8Array((await crypto.subtle.exportKey('raw', pair.publicKey)) as ArrayBuffer) };
}

// Paired is what two sides have that have exchanged public keys and a code.
export interface Paired {
  key: CryptoKey; // seals, and can't be read
  fingerprint: string; // what people compare; no secret
}

// pair makes the key. It throws for a public key of another length, one of low
// order, by which a carrier would know the key, and for a code that is none.
export async function pair(privateKey: CryptoKey, other: Bytes, code: string): Promise<Paired> {
  const salt = codeOf(code);
  if (salt === '') throw new Error('A pairing code has 8 or 12 letters: A to Z, 2 to 7.');
  if (other.length !== publicBytes) throw new Error(`A public key has ${publicBytes} bytes.`);
  const publicKey = await crypto.subtle.importKey('raw', other, curve, false, []);
  const shared = await crypto.subtle.deriveBits({ ...curve, public: publicKey }, privateKey, 256).catch(() => new ArrayBuffer(publicBytes));
  if (new Uint8Array(shared).every((byte) => byte === 0)) throw new Error('The public key is of low order.'); // an engine may leave that to us
  const material = await crypto.subtle.importKey('raw', shared, 'HKDF', false, ['deriveBits']);
  const secret = await crypto.subtle.deriveBits({ name: 'HKDF', hash: 'SHA-256', salt: utf8.encode(salt), info: utf8.encode(info) }, material, 256);
  return await keyOf(new Uint8Array(secret));
}

// keyOf is the key of a secret: its hash, also where the secret is as long as a key.
export async function keyOf(secret: Bytes): Promise<Paired> {
  const hash = new Uint8Array(await crypto.subtle.digest('SHA-256', secret));
  const key = await crypto.subtle.importKey('raw', hash, 'AES-GCM', false, ['encrypt']);
  const fingerprint = hexOf(hash.subarray(0, 4));
  hash.fill(0);
  secret.fill(0);
  return { key, fingerprint };
}

// seal is a nonce of its own, the ciphertext and the tag.
export async function seal(key: CryptoKey, plain: Bytes): Promise<Bytes> {
  const body = new Uint8Array(plain.length + overhead);
  const iv = crypto.getRandomValues(body.subarray(0, nonceBytes));
  body.set(new Uint8Array(await crypto.subtle.encrypt({ name: 'AES-GCM', iv }, key, plain)), nonceBytes);
  return body;
}

export const hexOf = (bytes: Uint8Array): string => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');

export const base64Of = (bytes: Uint8Array): string => btoa(String.fromCharCode(...bytes));

// fromBase64 reads the standard alphabet in its one spelling; nothing else.
export function fromBase64(text: unknown): Bytes | undefined {
  if (typeof text !== 'string' || !/^[A-Za-z0-9+/]+={0,2}$/.test(text) || text.length % 4 !== 0) return undefined;
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return base64Of(bytes) === text ? bytes : undefined;
}
