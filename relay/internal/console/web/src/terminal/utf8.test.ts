import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Joiner, unfinished } from './utf8.ts';

const text = 'a—é€😀\u{10ffff}z';
const encoded = new TextEncoder().encode(text);

test('a character that is cut comes out whole, wherever it is cut', () => {
  for (let i = 0; i <= encoded.length; i++) {
    for (let j = i; j <= encoded.length; j++) {
      const joiner = new Joiner();
      let out = '';
      for (const piece of [encoded.subarray(0, i), encoded.subarray(i, j), encoded.subarray(j)]) {
        out += new TextDecoder('utf-8', { fatal: true }).decode(joiner.join(piece)); // fails on half a character
      }
      assert.equal(out, text);
    }
  }
});

test('what can not become a character is not held back', () => {
  for (const bytes of [[], [0x41], [0x80], [0x80, 0x80, 0x80, 0x80], [0xff], [0xf5], [0xc3, 0xa9], [0xe2, 0x1b]]) {
    assert.equal(unfinished(Uint8Array.from(bytes)), 0, String(bytes));
  }
});

test('a keyframe takes the place of what is held', () => {
  const joiner = new Joiner();
  assert.equal(joiner.join(Uint8Array.of(0x41, 0xe2, 0x80)).length, 1);
  joiner.drop();
  assert.deepEqual([...joiner.join(Uint8Array.of(0x42))], [0x42]);
});
