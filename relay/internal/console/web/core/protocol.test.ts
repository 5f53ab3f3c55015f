import assert from 'node:assert/strict';
import { test } from 'node:test';
import { decode, encodeInput } from './protocol.ts';

test('frames of a newer relay are not understood, and do no harm', () => {
  assert.equal(decode('{"type":"sealed","key":"x"}'), undefined);
  assert.equal(decode('nonsense'), undefined);
  assert.equal(decode('null'), undefined);
  assert.equal(decode('{"type":"waiting","reason":"sandbox_offline","more":1}')?.type, 'waiting');
});

test('input is 8 bytes sequence, 8 bytes term, and what was typed', () => {
  const frame = encodeInput(2 ** 40 + 1, 7, new TextEncoder().encode('hi'));
  assert.equal(Buffer.from(frame).toString('hex'), '0000010000000001' + '0000000000000007' + '6869');
});

test('the messages are known', () => {
  for (const m of [{ type: 'agent_stopped', agent: 'claude-code', lastMessage: 'Done.', reason: 'complete', timestamp: 1_700_000_000_000 }, { type: 'tools_changed', oldCount: 1, newCount: 2, timestamp: 3 }]) assert.deepEqual(decode(JSON.stringify(m)), m);
});
