import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Drafts } from './drafts.ts';

test('a draft stays in its tab', () => {
  const field = { value: 'from before' };
  const drafts = new Drafts(field);
  drafts.turn(0);
  drafts.turn(1);
  assert.equal(field.value, 'from before');
  drafts.turn(2);
  assert.deepEqual([field.value, drafts.writing], ['', false]);
  field.value = ' two ';
  drafts.turn(1);
  assert.equal(drafts.take(), 'from before');
  drafts.turn(2);
  assert.deepEqual([field.value, drafts.writing], [' two ', true]);
  drafts.turn(1);
  assert.equal(field.value, '', 'it was sent');
});

test('drafts have a bound', () => {
  const field = { value: '' };
  const drafts = new Drafts(field);
  for (let tab = 1; tab < 100; tab++) {
    drafts.turn(tab);
    field.value = `d${tab}`;
  }
  drafts.turn(1);
  assert.equal(field.value, '');
  drafts.turn(90);
  assert.equal(field.value, 'd90');
});
