import assert from 'node:assert/strict';
import { test } from 'node:test';
import { shareable, title } from './url.ts';

const own = ['http://127.0.0.1:8080'];

test('an address leaves without what is secret in it', () => {
  assert.equal(shareable('https://shop.example/a?b=c', own), 'https://shop.example/a?b=c');
  assert.equal(shareable('https://me:pw@shop.example/#access_token=x', own), 'https://shop.example/');
  assert.equal(shareable('https://a.example/?token=1&q=2&API_KEY=3&apikey=4&code=5', own), 'https://a.example/?token=***&q=2&API_KEY=***&apikey=***&code=***');
  assert.equal(shareable('https://a.example/?token=1&token=2', own), 'https://a.example/?token=***&token=***');
  assert.equal(shareable('https://a.example/?passwd=a=b?c;d&pwd=&my-pwd=1', own), 'https://a.example/?passwd=***&pwd=&my-pwd=***');
  assert.equal(shareable('https://a.example/?q=1;%74o%6Ben%zz=s&+code%20=1&zipcode=2&q?sig=3', own), 'https://a.example/?q=1;%74o%6Ben%zz=***&+code%20=***&zipcode=2&q?sig=***');
  assert.equal(shareable('https://a.example/?to\tken=s', own), 'https://a.example/?token=***');
});

test('the browser’s pages and our own are told to nobody', () => {
  for (const address of [undefined, '', 'about:blank', 'chrome://settings', 'file:///etc/passwd', 'chrome-extension://abc/panel.html', 'javascript:1', 'http://127.0.0.1:8080/#token=ut_1', 'blob:https://a.example/1']) {
    assert.equal(shareable(address, own), undefined, String(address));
  }
  assert.equal(shareable('http://127.0.0.1:8081/', own), 'http://127.0.0.1:8081/');
});

test('an address of any length is short enough', () => {
  assert.equal(shareable(`https://a.example/p?q=${'x'.repeat(4_000)}`, own), 'https://a.example/p');
  assert.equal(shareable(`https://a.example/${'x'.repeat(4_000)}`, own)?.length, 2_048);
  assert.equal(title(`a\u202e\nb${'c'.repeat(999)}`).length, 256);
  assert.equal(title('a\u202eb\n'), 'a b ');
});
