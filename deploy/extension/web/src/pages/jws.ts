// The closed profile of JSON Web Signature, as protocol/jws in Go has it: steps 1
// to 7 of its README, with the same verdict on every token. A test compares them.

import { type Members, readArray, readLooseObject, readObject, readText, stringOf } from './json.ts';
import { auth, type Refusal } from './refusal.ts';

const mostTokenChars = 64 << 10;
const mostKeySetBytes = 64 << 10;
const mostKidBytes = 128;

// A token that has the right form. Who signed it is not known yet.
export interface Token {
  kid: string;
  typ: string; // empty where there is none
  payload: string;
  signed: string; // what the signature is over
  signature: Uint8Array<ArrayBuffer>;
}

// unknownKey and wrongSignature may mean that our keys are out of date.
export const unknownKey = 'the command is signed by an unknown key';
export const wrongSignature = 'the command has a wrong signature';

// decode applies steps 1 to 5, and throws an AuthError.
export function decode(token: string): Token {
  if (token.length > mostTokenChars) throw auth(`the token is larger than ${mostTokenChars} bytes`);
  const parts = token.split('.');
  const [first, second, third] = parts;
  if (!/^[A-Za-z0-9_.-]*$/.test(token) || parts.length !== 3 || !first || second === undefined || !third) throw auth('the token is not a compact JWS');
  const [header, payload, signature] = [bytesOf(first), bytesOf(second), bytesOf(third)];
  if (header === undefined || payload === undefined || signature === undefined) throw auth('the token is not canonical base64url');
  const { kid, typ } = readHeader(header);
  const text = readText(payload);
  if (text === undefined) throw auth('the payload is not valid UTF-8');
  if (signature.length !== 64) throw auth('the signature must have 64 bytes');
  return { kid, typ, payload: text, signed: `${first}.${second}`, signature };
}

function readHeader(bytes: Uint8Array): { kid: string; typ: string } {
  const text = readText(bytes);
  const members = text === undefined ? undefined : readObject(text);
  if (members === undefined) throw headerError('it is not one JSON object with distinct members');
  for (const name of members.keys()) if (name !== 'alg' && name !== 'kid' && name !== 'typ') throw headerError('only alg, kid and typ are allowed');
  if (stringOf(members.get('alg')) !== 'ES256') throw headerError('alg must be ES256');
  const kid = stringOf(members.get('kid')) ?? '';
  if (!validKid(kid)) throw headerError('kid is missing or unusable');
  const typ = stringOf(members.get('typ')) ?? '';
  if (members.has('typ') && typ === '') throw headerError('typ must be a string');
  return { kid, typ };
}

const headerError = (what: string): Refusal => auth(`the token's header: ${what}`);

const utf8 = new TextEncoder();
const validKid = (kid: string): boolean => kid !== '' && utf8.encode(kid).length <= mostKidBytes;

const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
const values = new Map(Array.from(digits, (digit, value) => [digit, value]));

// bytesOf decodes base64url in its one spelling: unpadded, unused bits zero. atob
// takes others, too.
export function bytesOf(text: string): Uint8Array<ArrayBuffer> | undefined {
  if (text.length % 4 === 1) return undefined;
  const bytes = new Uint8Array(Math.floor((text.length * 3) / 4));
  let held = 0;
  let bits = 0;
  let at = 0;
  for (const digit of text) {
    const value = values.get(digit);
    if (value === undefined) return undefined;
    held = ((held << 6) | value) & 0xffff;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes[at++] = held >> bits;
    held &= (1 << bits) - 1;
  }
  return held === 0 ? bytes : undefined;
}

// A KeySet holds the keys that verify tokens, by their kid.
export class KeySet {
  private constructor(
    private readonly keys: ReadonlyMap<string, CryptoKey>,
    readonly ignored: number,
  ) {}

  static readonly empty = new KeySet(new Map(), 0);

  get size(): number {
    return this.keys.size;
  }

  // read reads a JWK set, key by key: one of a kind to come doesn't spoil the
  // others. Keys that share a kid are all ignored. Undefined is no JWK set.
  static async read(text: string): Promise<KeySet | undefined> {
    if (utf8.encode(text).length > mostKeySetBytes) return undefined;
    const list = readLooseObject(text)?.get('keys');
    if (readLooseObject(text) === undefined) return undefined;
    const jwks = list === undefined || list === 'null' ? [] : readArray(list);
    if (jwks === undefined) return undefined;
    const members = jwks.map(readObject);
    const holders = new Map<string, number>();
    for (const kid of members.map(kidOf)) holders.set(kid, (holders.get(kid) ?? 0) + 1);
    const keys = new Map<string, CryptoKey>();
    for (const jwk of members) {
      const kid = stringOf(jwk?.get('kid')) ?? '';
      const key = jwk === undefined || holders.get(kid) !== 1 || !validKid(kid) ? undefined : await importKey(jwk);
      if (key !== undefined) keys.set(kid, key);
    }
    return new KeySet(keys, jwks.length - keys.size);
  }

  // verify applies steps 6 and 7, and throws an AuthError.
  async verify(token: Token): Promise<void> {
    const key = this.keys.get(token.kid);
    if (key === undefined) throw auth(unknownKey);
    const right = await crypto.subtle.verify({ name: 'ECDSA', hash: 'SHA-256' }, key, token.signature, utf8.encode(token.signed));
    if (!right) throw auth(wrongSignature);
  }
}

// kidOf is the kid of a key of any type. Other libraries ignore the case of a
// member's name, so this does, too.
function kidOf(jwk: Members | undefined): string {
  for (const [name, value] of jwk ?? []) if (name.toLowerCase() === 'kid' || name === '\u212aid') return stringOf(value) ?? '';
  return '';
}

const secrets = ['d', 'k', 'p', 'q', 'dp', 'dq', 'qi', 'oth', 'priv'];

// importKey returns the key of a public P-256 JWK that may verify ES256.
async function importKey(jwk: Members): Promise<CryptoKey | undefined> {
  const is = (name: string, value: string): boolean => stringOf(jwk.get(name)) === value;
  if (secrets.some((name) => jwk.has(name))) return undefined;
  if (!is('kty', 'EC') || !is('crv', 'P-256')) return undefined;
  if ((jwk.has('use') && !is('use', 'sig')) || (jwk.has('alg') && !is('alg', 'ES256')) || !mayVerify(jwk.get('key_ops'))) return undefined;
  const [x, y] = [scalar(jwk.get('x')), scalar(jwk.get('y'))];
  if (x === undefined || y === undefined) return undefined;
  try {
    return await crypto.subtle.importKey('jwk', { kty: 'EC', crv: 'P-256', x, y }, { name: 'ECDSA', namedCurve: 'P-256' }, false, ['verify']);
  } catch {
    return undefined; // not on the curve
  }
}

function mayVerify(keyOps: string | undefined): boolean {
  if (keyOps === undefined) return true;
  const list = JSON.parse(keyOps) as unknown;
  return Array.isArray(list) && list.every((op) => op === null || typeof op === 'string') && list.includes('verify');
}

// scalar is a coordinate of exactly 32 bytes.
function scalar(text: string | undefined): string | undefined {
  const digits = stringOf(text);
  return digits !== undefined && digits.length === 43 && bytesOf(digits)?.length === 32 ? digits : undefined;
}
