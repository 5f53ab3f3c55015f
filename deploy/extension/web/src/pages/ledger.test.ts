import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bodyOf, Callbacks, fitting, heard, over, pauseMs } from './callback.ts';
import { Ledger, type Outcome } from './ledger.ts';
import { Memory } from './memory.ts';

const order = (commandId: string, issuedAt = 0) => ({
  commandId, traceId: `tr_${commandId}`, issuedAt, ttlMs: 30_000, reply: { url: 'https://relay.example/control/callback', callbackToken: 'ct_1' },
  target: { tabId: 1, sandboxId: '', sessionId: 'ses_1', ptyId: '', extensionId: '', browserId: '' },
});
const done: Outcome = { status: 'ok', at: 5, durationMs: 2, result: { kind: 'cdp.send', tabId: 1, method: 'Runtime.evaluate', response: { result: { value: 2 } } } };

test('a command is new once, also to the next worker, and of several at a time', async () => {
  const area = new Memory();
  const ledger = new Ledger(area, 'one', () => 0);
  assert.deepEqual(await Promise.all([ledger.take(order('a')), ledger.take(order('a')), ledger.take(order('a'))]), ['new', 'seen', 'seen']);
  assert.equal(area.kept.size, 1, 'it is on the disk before it is new');
  assert.equal(await new Ledger(area, 'two', () => 0).take(order('a')), 'seen');
});

test('what can’t be noted doesn’t run, and may come again', async () => {
  const area = new Memory();
  const ledger = new Ledger(area, 'one', () => 0);
  area.full = true;
  assert.deepEqual(await Promise.all([ledger.take(order('a')), ledger.take(order('a'))]), ['full', 'full']);
  area.full = false;
  assert.equal(await ledger.take(order('a')), 'new');
});

test('it holds so many, and forgets only what no clock would run', async () => {
  let now = 0;
  const ledger = new Ledger(new Memory(), 'one', () => now, { entries: 2, bytes: 1_000 });
  assert.equal(await ledger.take(order('a')), 'new');
  assert.equal(await ledger.take(order('b')), 'new');
  for (const id of ['a', 'b']) {
    const entry = await ledger.end(id, done);
    assert.ok(entry);
    await ledger.told(entry);
  }
  now = 30_000 + 120_000;
  assert.equal(await ledger.take(order('c', now)), 'full');
  assert.equal(await ledger.take(order('a')), 'seen');
  now++;
  assert.equal(await ledger.take(order('c', now)), 'new');
});

test('answers that wait take so much, those after them are a word', async () => {
  const ledger = new Ledger(new Memory(), 'one', () => 0, { entries: 9, bytes: 300 });
  for (const id of ['a', 'b', 'c']) await ledger.take(order(id));
  assert.equal((await ledger.end('a', done))?.outcome?.status, 'ok');
  assert.equal((await ledger.end('b', done))?.outcome?.status, 'ok');
  const third = await ledger.end('c', done);
  assert.equal(third?.outcome?.status === 'error' && third.outcome.error.name, 'LimitError');
  assert.equal(await ledger.end('a', done), undefined, 'an outcome is the first one');
});

test('a worker that died leaves unknown, told by the next one until it is heard', async () => {
  const area = new Memory();
  const first = new Ledger(area, 'one', () => 0);
  await first.take(order('lost'));
  await first.take(order('done'));
  await first.end('done', done);
  const posts: string[] = [];
  const statuses = [0, 503, 429, 302, 200, 204];
  const second = new Ledger(area, 'two', () => 10);
  const pauses: number[] = [];
  const callbacks = new Callbacks(second, (url, token, body) => {
    assert.deepEqual([url, token], ['https://relay.example/control/callback', 'ct_1']);
    posts.push(body);
    const { commandId } = JSON.parse(body) as { commandId: string };
    const status = commandId === 'lost' ? (statuses.shift() ?? 204) : 403;
    return status === 0 ? Promise.reject(new Error('network')) : Promise.resolve(status);
  }, () => 10, (ms) => (pauses.push(ms), Promise.resolve()));
  await callbacks.resume();
  while (await second.busy()) await new Promise((resolve) => setImmediate(resolve));
  const lost = posts.map((body) => JSON.parse(body)).filter((body) => body.commandId === 'lost');
  assert.deepEqual(lost.map((body) => body.telemetry.attempt), [1, 2, 3, 4, 5, 6]);
  assert.ok(lost.every((body) => body.status === 'unknown' && body.error === undefined && body.result === undefined));
  assert.equal(posts.length, 7, 'a 4xx ends the other at once');
  assert.ok(pauses.every((ms, i) => i === 0 || ms > (pauses[i - 1] ?? 0)));
  const third = new Ledger(area, 'three', () => 20);
  assert.deepEqual([await third.lost(), await third.untold(), await third.take(order('lost'))], [[], [], 'seen']);
  assert.ok(![...area.kept.values()].some((text) => text.includes('ct_1')), 'what was told is forgotten');
});

test('what a relay knew nothing of waits, and is told again when the command is sent again', async () => {
  let now = 10;
  const area = new Memory();
  const ledger = new Ledger(area, 'one', () => now);
  await ledger.take(order('a'));
  const statuses = [404, 404, 404, 204];
  const posts: string[] = [];
  const told = (l: Ledger) => new Callbacks(l, (_, __, body) => (posts.push(body), Promise.resolve(statuses.shift() ?? 404)), () => now, () => Promise.resolve());
  const callbacks = told(ledger);
  const entry = await ledger.end('a', done);
  assert.ok(entry);
  await callbacks.tell(entry);
  await callbacks.resume(); // by itself it doesn't ask again
  assert.equal(posts.length, 1);
  await callbacks.again('b');
  assert.equal(posts.length, 1);
  const next = new Ledger(area, 'two', () => now);
  await told(next).again('a'); // the relay hears of it a little later than the page
  assert.deepEqual(posts.map((body) => (JSON.parse(body) as { status: string }).status), ['ok', 'ok', 'ok', 'ok'], 'also by the next worker');
  assert.equal(await next.busy(), false);
  await told(next).again('a');
  assert.equal(posts.length, 4);

  // Sent again while it runs, it is told until somebody knows of it.
  await next.take(order('b'));
  await told(next).again('b');
  assert.equal(posts.length, 4);
  statuses.push(404, 404, 204);
  const second = await next.end('b', done);
  assert.ok(second);
  await told(next).tell(second);
  assert.equal(posts.length, 7);

  // It doesn't wait for ever, nor is it told as often as somebody likes.
  await next.take(order('c'));
  const third = await next.end('c', done);
  assert.ok(third);
  await told(next).tell(third);
  for (let i = 0; i < 99; i++) await told(next).again('c');
  assert.equal(posts.length, 7 + 50);
  now = 30_000 + 60_001;
  const later = told(next);
  await later.resume();
  while (await next.busy()) await new Promise((resolve) => setImmediate(resolve));
  assert.equal(posts.length, 7 + 50);
  assert.ok(![...area.kept.values()].some((kept) => JSON.stringify(kept).includes('"value":2')), 'it is forgotten');
});

// The page is at another relay, which doesn't send the command again.
test('a relay that was silent may hear of a command later than of its outcome', async () => {
  const ledger = new Ledger(new Memory(), 'one', () => 10);
  let posts = 0;
  const tell = async (id: string, statuses: number[]) => {
    posts = 0;
    await ledger.take(order(id));
    const entry = await ledger.end(id, done);
    assert.ok(entry);
    await new Callbacks(ledger, () => (posts++, Promise.resolve(statuses.shift() ?? 404)), () => 10, () => Promise.resolve()).tell(entry);
  };
  await tell('a', [0, 404, 404, 204]);
  assert.equal(posts, 4);
  assert.equal(await ledger.busy(), false);
  await tell('b', [503, 404, 404, 404, 404, 204]); // but it isn't asked for ever
  assert.equal(posts, 5);
  assert.equal(await ledger.busy(), true);
});

test('nobody is told when nobody waits', async () => {
  let now = 0;
  const ledger = new Ledger(new Memory(), 'one', () => now);
  await ledger.take(order('a'));
  const entry = await ledger.end('a', done);
  assert.ok(entry);
  let sent = 0;
  await new Callbacks(ledger, () => (sent++, Promise.resolve(500)), () => now, () => ((now += 20_000), Promise.resolve())).tell(entry);
  assert.equal(sent, 5); // at 0, 20, 40, 60, 80 s; 90 s are the deadline and a minute
  assert.equal(await ledger.busy(), false);
});

test('a callback is the seed’s', async () => {
  const entry = { commandId: 'cmd_1', traceId: 'tr_1' };
  assert.deepEqual(JSON.parse(bodyOf(entry, done, 3)), {
    type: 'control.callback', commandId: 'cmd_1', traceId: 'tr_1', at: 5, status: 'ok',
    result: { kind: 'cdp.send', tabId: 1, method: 'Runtime.evaluate', response: { result: { value: 2 } } }, telemetry: { durationMs: 2, attempt: 3 },
  });
  assert.deepEqual(JSON.parse(bodyOf(entry, { status: 'error', at: 1, durationMs: 0, error: { message: 'No such tab', name: 'TargetError' } }, 1)).error, { message: 'No such tab', name: 'TargetError' });
  const large = (length: number): Outcome => ({ ...done, result: { ...done.result, response: 'é'.repeat(length) } }) as Outcome;
  assert.equal(fitting(entry, large(65_000)).status, 'ok');
  assert.equal(fitting(entry, large(65_536)).status, 'error', 'bytes count, not characters');
  assert.deepEqual([204, 400, 401, 404, 410, 429, 408, 500, 503, 200, 0, 302].map(heard), [true, true, true, true, true, false, true, false, false, false, false, false]);
  assert.ok(pauseMs(1) < pauseMs(2) && pauseMs(99) === 30_000);
  assert.equal(over({ deadline: 0 } as never, 60_000), false);
  assert.equal(over({ deadline: 0 } as never, 60_001), true);
});
