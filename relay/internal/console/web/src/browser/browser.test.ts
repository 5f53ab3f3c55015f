import assert from 'node:assert/strict';
import { test } from 'node:test';
import { drawable, jpegSize } from './jpeg.ts';
import { boundaryOf, mostPartBytes, MultipartParser } from './multipart.ts';

const encode = (text: string): Uint8Array<ArrayBuffer> => Uint8Array.from(text, (c) => c.charCodeAt(0));
const decode = (bytes: Uint8Array) => String.fromCharCode(...bytes);

const withLength = '--frame\r\nContent-Type: image/jpeg\r\nContent-Length: 9\r\n\r\none--fram\r\n--frame\r\ncontent-type: IMAGE/JPEG; x=y\r\ncontent-length: 0\r\n\r\n\r\n--frame\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\n\r\n-\r\n--frame--\r\n--frame\r\nContent-Length: 1\r\n\r\nx';
const wantLength = [['image/jpeg', 'one--fram'], ['image/jpeg', ''], ['text/plain', '\r\n-']];
const withoutLength = 'preamble\r\n--frame\r\nContent-Type: image/jpeg\r\n\r\none\r\n-\r\n--fra\r\n--frame\r\n\r\n\r\n--frame\r\nContent-Type: a/b\r\n\r\ntwo\r\n--frame--';
const wantWithout = [['image/jpeg', 'one\r\n-\r\n--fra'], ['', ''], ['a/b', 'two']];

test('parts, however they are cut', () => {
  for (const [stream, want] of [[withLength, wantLength], [withoutLength, wantWithout]] as const) {
    for (const size of [1, 2, 3, 5, 7, 11, 1000]) {
      const parser = new MultipartParser('frame');
      const got: string[][] = [];
      for (let at = 0; at < stream.length; at += size) got.push(...parser.push(encode(stream.slice(at, at + size))).map(({ type, body }) => [type, decode(body)]));
      assert.deepEqual(got, want, `pieces of ${size}`);
    }
  }
});

test('a part with a length is there as soon as it is whole', () => {
  const parser = new MultipartParser('frame');
  assert.equal(parser.push(encode('--frame\r\nContent-Type: image/jpeg\r\nContent-Length: 3\r\n\r\nab')).length, 0);
  assert.equal(parser.push(encode('c')).length, 1);
});

test('nonsense is refused, and nothing is kept without end', () => {
  const fail = (text: string) => assert.throws(() => new MultipartParser('frame').push(encode(text)));
  fail(`--frame\r\nContent-Length: ${mostPartBytes + 1}\r\n\r\n`);
  fail('--frame\r\nContent-Length: -1\r\n\r\n');
  fail(`--frame\r\n${'X: y\r\n'.repeat(3000)}`);
  const endless = new MultipartParser('frame');
  endless.push(encode('--frame\r\nContent-Type: image/jpeg\r\n\r\n'));
  const piece = new Uint8Array(1 << 20);
  assert.throws(() => {
    for (let i = 0; i < 12; i++) endless.push(piece);
  }, /too large/);
  const idle = new MultipartParser('frame');
  for (let i = 0; i < 100; i++) assert.deepEqual(idle.push(piece), []);
});

test('random pieces never break the parser', () => {
  const seed = Date.now() % 1e6;
  let random = seed;
  const next = (n: number) => (random = (random * 1103515245 + 12345) % 2147483648) % n;
  const words = ['--frame', '\r\n', '--', 'Content-Length: 4', 'Content-Type: image/jpeg', 'body', '\r\n\r\n', '-'];
  for (let round = 0; round < 300; round++) {
    const parser = new MultipartParser('frame');
    const text = Array.from({ length: 30 }, () => words[next(words.length)]).join('');
    const whole: string[] = [];
    const cut: string[] = [];
    const other = new MultipartParser('frame');
    for (const { body } of parser.push(encode(text))) whole.push(decode(body));
    for (let at = 0; at < text.length; ) {
      const size = 1 + next(9);
      for (const { body } of other.push(encode(text.slice(at, at + size)))) cut.push(decode(body));
      at += size;
    }
    assert.deepEqual(cut, whole, `seed ${seed}, ${JSON.stringify(text)}`);
  }
});

test('boundaries', () => {
  assert.equal(boundaryOf('multipart/x-mixed-replace; boundary=frame'), 'frame');
  assert.equal(boundaryOf('multipart/x-mixed-replace;charset=x; boundary="a b"'), 'a b');
  assert.equal(boundaryOf('image/jpeg; boundary=frame'), '');
  assert.throws(() => new MultipartParser(''), /boundary/);
});

const picture = (width: number, height: number, before: number[] = []) => Uint8Array.from([
  0xff, 0xd8, ...before, 0xff, 0xff, 0xe0, 0, 4, 1, 2, 0xff, 0xc4, 0, 3, 9, 0xff, 0xc0, 0, 11, 8, height >> 8, height & 255, width >> 8, width & 255, 1, 0, 0, 0,
]);

test('the size of a picture is known before it is drawn', () => {
  assert.deepEqual(jpegSize(picture(1280, 800)), { width: 1280, height: 800 });
  assert.ok(drawable(picture(1280, 800)));
  for (const data of [picture(65535, 65535), picture(0, 10), picture(1280, 800, [0]), picture(10, 10, [0xff, 0xda]), encode('GIF89a-----'), new Uint8Array(0)]) assert.ok(!drawable(data));
  for (let length = 0; length < 20; length++) assert.equal(jpegSize(picture(5, 5).subarray(0, length)), undefined);
});
