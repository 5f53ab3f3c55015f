import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ackBytes, ackMs, Acks } from './acks.ts';

function begun(offset: number, now = 0): Acks {
  const acks = new Acks();
  acks.begin(offset);
  acks.said(now);
  return acks;
}

test('an ack goes out when all is rendered, a few a second', () => {
  const acks = new Acks();
  acks.begin(100);
  assert.deepEqual(acks.rendered(110, 110, 5), { send: true, laterMs: null });
  acks.said(5);
  assert.deepEqual(acks.rendered(111, 111, 6), { send: false, laterMs: ackMs - 1 });
  assert.deepEqual(acks.due(111, 5 + ackMs), { send: true, laterMs: null });
  acks.said(5 + ackMs);
  assert.deepEqual(acks.due(111, 9_000), { send: false, laterMs: null }); // nothing new
});

test('much output is acknowledged without delay', () => {
  const acks = begun(0);
  assert.deepEqual(acks.rendered(ackBytes - 1, 10 * ackBytes, 1), { send: false, laterMs: null }); // more is coming
  assert.deepEqual(acks.rendered(ackBytes, 10 * ackBytes, 2), { send: true, laterMs: null });
  assert.equal(acks.offset, ackBytes);
});

test('the relay never waits for more than it allows', () => {
  const acks = begun(0);
  let said = 0;
  for (let offset = 16_000; offset < 4 << 20; offset += 16_000) {
    if (!acks.rendered(offset, 8 << 20, 1).send) continue;
    acks.said(1);
    said = offset;
    assert.ok(offset - said <= 64 << 10);
  }
  assert.ok(said > (4 << 20) - (64 << 10));
});

test('what an earlier connection brought is not acknowledged on the next', () => {
  const acks = begun(500);
  assert.deepEqual(acks.rendered(400, 500, 9_000), { send: false, laterMs: null });
  assert.equal(acks.offset, 500);
});
