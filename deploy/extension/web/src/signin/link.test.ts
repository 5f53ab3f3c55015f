import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isLink, readLink } from './link.ts';

const origins = ['http://127.0.0.1:8080', 'https://relay.example'];

test('the console’s link and the page’s own fragment are links', () => {
  assert.deepEqual(readLink(' https://relay.example/#token=ut_1&session=ses_2&pty=pty_3\n', origins), { origin: 'https://relay.example', token: 'ut_1', session: 'ses_2' });
  assert.deepEqual(readLink('#token=ut_1', origins), { origin: 'http://127.0.0.1:8080', token: 'ut_1', session: null });
  assert.deepEqual(readLink('#token=ut_1&session=', origins), { origin: 'http://127.0.0.1:8080', token: 'ut_1', session: null });
});

test('a token goes to no relay that the extension was not built for', () => {
  for (const text of [
    'https://evil.example/#token=ut_1',
    'https://relay.example.evil.example/#token=ut_1',
    'https://relay.example@evil.example/#token=ut_1',
    'https://user:pass@relay.example/#token=ut_1',
    'http://relay.example/#token=ut_1',
    'http://127.0.0.1:8081/#token=ut_1',
  ]) {
    assert.equal(readLink(text, origins), 'another relay', text);
  }
  for (const text of ['', 'ut_1', 'javascript:alert(1)#token=ut_1', 'file:///etc/passwd#token=ut_1']) assert.equal(readLink(text, origins), 'no link', text);
  for (const text of ['https://relay.example/', '#', '#token=', '#token=a%0d%0aX: y', '#token=%C3%A9', `#token=${'x'.repeat(513)}`]) {
    assert.equal(readLink(text, origins), 'no token', text);
  }
  assert.equal(readLink('#token=ut_1', []), 'no link');
});

test('what another build has stored is not used', () => {
  assert.ok(isLink({ origin: 'https://relay.example', token: 't', session: null }, origins));
  for (const value of [null, 'x', {}, { origin: 'https://old.example', token: 't', session: null }, { origin: 'https://relay.example', token: 1, session: null }]) {
    assert.equal(isLink(value, origins), false);
  }
});
