import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Origins, Session, type Platform } from '@fairlead/core';
import { Feed } from './feed.ts';

// A relay that answers each message by the next of answers: a status, or a body.
// Its clock passes at once.
function relay(answers: (number | object)[], address?: string) {
  const asked: { key: string | undefined; body: Record<string, unknown> }[] = [];
  const platform: Platform = {
    fetch: async (url, init) => {
      if (url.endsWith('/grants')) return Response.json({ grant: 'g', expires_at: '2000-01-01T00:10:00Z' }, { headers: { Date: 'Sat, 01 Jan 2000 00:00:00 GMT' } });
      asked.push({ key: (init.headers as Record<string, string>)['Idempotency-Key'], body: JSON.parse(String(init.body)) as Record<string, unknown> });
      const answer = answers.shift();
      if (answer === undefined || answer === 0) throw new TypeError('no relay');
      return typeof answer === 'number' ? Response.json({ error: `status ${answer}` }, { status: answer }) : Response.json(answer);
    },
    WebSocket: class {} as unknown as typeof WebSocket,
    clock: { now: () => 0, date: () => 0, setTimeout: (run, ms) => (ms < 10_000 ? setImmediate(run) : undefined), clearTimeout: (timer) => clearImmediate(timer as NodeJS.Immediate) },
    random: () => 0,
    uuid: (() => { let n = 0; return () => `key-${++n}`; })(),
  };
  const session = new Session({ id: 'ses_1', token: 't', origins: new Origins({ first: 'http://relay.test' }), platform });
  const problems: string[] = [];
  const unanswered: boolean[] = [];
  const feed = new Feed(session, { changed: () => {}, connected: () => {}, over: () => {}, problem: (text) => problems.push(text), unanswered: () => unanswered.push(true), address: () => address }, platform);
  return { feed, asked, problems, unanswered };
}

test('a message of which nobody knows is asked for by its name, not sent twice', async () => {
  const { feed, asked } = relay([0, 502, 503, { ok: true, processing: true }]);
  await feed.say('hello');
  assert.deepEqual(asked.map(({ key }) => key), ['key-1', 'key-1', 'key-1', 'key-1']);
  assert.equal(feed.chat.shown.rows[0]?.sending, 'working');
});

test('a message that is never answered is lost, and keeps its name', async () => {
  const { feed, asked } = relay([]);
  await feed.say('hello');
  const [row] = feed.chat.shown.rows;
  assert.equal(row?.sending, 'lost');
  assert.ok(row);
  await feed.again(row);
  assert.deepEqual([...new Set(asked.map(({ key }) => key))], ['key-1']);
  assert.equal(feed.chat.shown.rows.length, 1);
});

test('a message that was refused is another one when it is sent again', async () => {
  const { feed, asked } = relay([429, { ok: true, queued: true, position: 2 }]);
  await feed.say('hello');
  const [row] = feed.chat.shown.rows;
  assert.deepEqual([row?.sending, row?.note], ['refused', 'status 429']);
  assert.ok(row);
  await feed.again(row);
  assert.deepEqual(asked.map(({ key }) => key), ['key-1', 'key-2']);
  assert.deepEqual(feed.chat.shown.rows.map(({ sending, note }) => [sending, note]), [['queued', 'Number 2 in line']]);
});

test('a message goes to the tab that is shown, with her address if she shares it', async () => {
  const answers = [{ ok: true }, { ok: true }];
  const shown = relay([...answers]);
  await shown.feed.say('a');
  shown.feed.chat.state({ activeTabId: 3 });
  await shown.feed.say('b');
  assert.deepEqual(shown.asked.map(({ body }) => body), [{ message: 'a' }, { message: 'b', tabId: 3 }]);
  const shared = relay([...answers], 'https://a.example/');
  shared.feed.chat.state({ activeTabId: 3 });
  await shared.feed.say('c');
  assert.deepEqual(shared.asked.map(({ body }) => body), [{ message: 'c', tabId: 3, activeTabUrl: 'https://a.example/' }]);
});

test('what could not be done is said', async () => {
  const { feed, problems } = relay([403, 403]);
  await feed.halt();
  await feed.clear();
  assert.deepEqual(problems, ['status 403', 'status 403']);
});

// asks has a feed's chat show a question.
const asks = ({ chat }: Feed) => {
  chat.state({ activeTabId: 3 });
  chat.entry({ id: 0, role: 'agent', type: 'question', tool: 'Bash', input: 'ls', requestId: 'apr_1', revision: 2, tabId: 3 });
  const [row] = chat.shown.rows;
  assert.ok(row);
  return row;
};

test('an answer names its question, and is given once however often it is asked for', async () => {
  const { feed, asked, problems } = relay([0, 503, { ok: true, applied: true }]);
  await feed.answer(asks(feed), true);
  assert.deepEqual(asked.map(({ key }) => key), ['key-1', 'key-1', 'key-1']);
  assert.deepEqual(asked[0]?.body, { requestId: 'apr_1', revision: 2, allow: true, tabId: 3 });
  assert.deepEqual(problems, []);
});

test('an answer that was refused can be given again', async () => {
  const { feed, problems, unanswered } = relay([403]);
  const row = asks(feed);
  await feed.answer(row, false);
  assert.deepEqual([problems, unanswered, row.question?.state], [['Your answer about Bash was not taken: status 403'], [true], 'open']);
});
