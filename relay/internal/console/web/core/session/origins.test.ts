import assert from 'node:assert/strict';
import { test } from 'node:test';
import { originOf, Origins } from './origins.ts';

const [a, b, c] = ['https://a.test', 'https://b.test', 'https://c.test'];

function make(remembered: string | null = null, list = [a, b, c]) {
  const kept: string[] = [];
  return { kept, origins: new Origins({ first: b, all: list, remembered, remember: (origin) => kept.push(origin) }) };
}

test('a client begins where it came from, or where it was', () => {
  assert.equal(make().origins.current, b);
  assert.equal(make(c).origins.current, c);
  assert.equal(make('https://elsewhere.test').origins.current, b);
  assert.equal(make(null, []).origins.current, b);
});

test('a relay that does not answer leads to the next, and round again', () => {
  const { origins, kept } = make();
  for (const want of [a, c, b]) {
    origins.failed(origins.current);
    assert.equal(origins.current, want);
  }
  assert.deepEqual(kept, [a, c, b]);
});

test('several terminals that fail at one relay move on once', () => {
  const { origins } = make();
  for (let i = 0; i < 5; i++) origins.failed(b);
  assert.equal(origins.current, a);
});

test('a move is followed to known relays only', () => {
  const { origins } = make();
  assert.ok(origins.moved(c, 0));
  assert.equal(origins.current, c);
  assert.ok(!origins.moved('https://evil.test', 0));
  assert.equal(origins.current, c);
});

test('one relay is tried again and again', () => {
  const { origins, kept } = make(null, [b]);
  origins.failed(b);
  assert.equal(origins.current, b);
  assert.deepEqual(kept, []);
});

test('the origin of a socket', () => {
  assert.equal(originOf('wss://a.test/sessions/s/ptys/p/ws?client=x'), a);
  assert.equal(originOf('ws://127.0.0.1:8080/ws'), 'http://127.0.0.1:8080');
});

test('nobody goes back soon to a relay that stood still, whoever says so', () => {
  const { origins } = make();
  origins.silent(b, 1_000);
  assert.equal(origins.current, a);
  assert.ok(!origins.moved(b, 10_999));
  assert.equal(origins.current, a);
  assert.ok(origins.moved(b, 11_000));
  assert.equal(origins.current, b);
});

test('another name of the same relay is no other relay, unless there is none', () => {
  const names = ['http://127.0.0.1:1', 'http://localhost:1'];
  const other = ['http://127.0.0.1:2', 'http://localhost:2'];
  const both = new Origins({ first: names[0] ?? '', all: [...names, ...other] });
  assert.ok(both.others);
  both.silent('http://127.0.0.1:1', 0);
  assert.equal(both.current, 'http://127.0.0.1:2');
  both.failed('http://127.0.0.1:2');
  assert.equal(both.current, 'http://127.0.0.1:1');
  const one = new Origins({ first: names[0] ?? '', all: names });
  assert.ok(!one.others);
  one.failed('http://127.0.0.1:1');
  assert.equal(one.current, 'http://localhost:1');
});
