import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EventParser } from './sse.ts';

const stream = 'retry: 2000\n\nevent: opened\nid: 01:5\ndata: {"a":1}\n\n: \n\ndata: one\ndata: two\n\nevent: approval\r\nid: 01:6\r\ndata:{}\r\n\r\nevent: cut\ndata: never';
const want = [
  { name: 'opened', data: '{"a":1}', id: '01:5' },
  { name: 'message', data: 'one\ntwo', id: '01:5' },
  { name: 'approval', data: '{}', id: '01:6' },
];

test('events, however they are cut', () => {
  assert.deepEqual(new EventParser().push(stream), want);
  for (let size = 1; size < 12; size++) {
    const parser = new EventParser();
    const got = [];
    for (let at = 0; at < stream.length; at += size) got.push(...parser.push(stream.slice(at, at + size)));
    assert.deepEqual(got, want, `pieces of ${size}`);
  }
});

test('an event without end is not kept', () => {
  const parser = new EventParser();
  assert.throws(() => {
    for (let i = 0; i < 100; i++) parser.push('x'.repeat(1 << 20));
  }, /too large/);
});
