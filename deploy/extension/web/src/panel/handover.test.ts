import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parsePlace, readPlace } from './handover.ts';

const place = { session: 'ses_1', conversation: 'c-1.2:3' };

test('a page names a conversation, and nothing else passes', () => {
  assert.deepEqual(parsePlace(JSON.stringify({ ...place, more: '<b>' })), place);
  for (const text of [undefined, null, 1, place, '', '{', 'null', '[]', '"x"', '{"session":"ses_1"}', JSON.stringify({ ...place, session: '' }), JSON.stringify({ ...place, conversation: '../x' }),
    JSON.stringify({ ...place, conversation: 'x'.repeat(129) }), JSON.stringify({ ...place, conversation: ['c'] }), ' '.repeat(1_025) + JSON.stringify(place)]) {
    assert.equal(parsePlace(text), undefined, String(text));
  }
  for (const value of [undefined, 'x', {}, { session: 1, conversation: 'c' }]) assert.equal(readPlace(value), undefined);
});
