// For a test that has Go open what is sealed here: pairs with the key that standard
// input has, and seals its cookies.

import { envelope, wireOf, type Cookie } from './cookie.ts';
import { base64Of, fromBase64, newHalf, pair, seal } from './seal.ts';

interface Asked {
  sinkPublicKey: string;
  code: string;
  sequence: number;
  cookies: Cookie[];
}

let text = '';
for await (const part of process.stdin.setEncoding('utf8')) text += part;
const { sinkPublicKey, code, sequence, cookies } = JSON.parse(text) as Asked;
const own = await newHalf();
const { key, fingerprint } = await pair(own.privateKey, fromBase64(sinkPublicKey) ?? new Uint8Array(), code);
const body = await seal(key, new TextEncoder().encode(envelope('browser', sequence, cookies.map(wireOf))));
process.stdout.write(JSON.stringify({ publicKey: base64Of(own.publicKey), fingerprint, body: base64Of(body) }));
