import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Conversations, type Entry } from './model.ts';

// told makes conversations of entries, which are numbered in order.
function told(...entries: Omit<Entry, 'id'>[]): Conversations {
  const chat = new Conversations();
  entries.forEach((entry, id) => chat.entry({ ...entry, id }));
  return chat;
}

const user = (message: string, tabId = 0): Omit<Entry, 'id'> => ({ role: 'user', message, tabId });
const agent = (type: string, more: Partial<Entry> = {}): Omit<Entry, 'id'> => ({ role: 'agent', type, ...more });
const rows = (chat: Conversations, id = 0) => chat.tab(id).rows.map(({ kind, text }) => `${kind} ${text}`);

test('a run: the dots from its start to its end', () => {
  const chat = told(user('go to hn'), agent('agent_start'));
  assert.ok(chat.thinking(chat.tab(0)));
  ([agent('tool_use', { tool: 'browser_navigate', input: 'https://hn' }), agent('text_delta', { text: 'The' }), agent('text_delta', { text: 're' })] as Omit<Entry, 'id'>[]).forEach((e, i) => chat.entry({ ...e, id: 2 + i }));
  assert.equal(chat.tab(0).rows.at(-1)?.live, true);
  [agent('text', { text: 'There.' }), agent('result', { text: 'There.' }), agent('agent_done')].forEach((e, i) => chat.entry({ ...e, id: 5 + i }));
  assert.deepEqual(rows(chat), ['user go to hn', 'tool https://hn', 'text There.']);
  assert.equal(chat.tab(0).rows.at(-1)?.live, undefined);
  assert.equal(chat.thinking(chat.tab(0)), false);
  assert.equal(chat.mark, 8);
});

test('a result that was said already isn’t said twice, one that wasn’t is', () => {
  assert.deepEqual(rows(told(user('a'), agent('text', { text: 'x' }), agent('tool_use', { input: 'i' }), agent('result', { text: 'x' }))), ['user a', 'text x', 'tool i']);
  assert.deepEqual(rows(told(user('a'), agent('text', { text: 'x' }), user('b'), agent('result', { text: 'x' }))), ['user a', 'text x', 'user b', 'text x']);
});

test('a message is there at once, and its entry takes its place', () => {
  const chat = new Conversations();
  const row = chat.say('hello ', 'n');
  assert.deepEqual([chat.thinking(chat.shown), chat.taken(chat.shown)], [true, false]);
  chat.answered(row, 'working');
  assert.ok(chat.taken(chat.shown));
  chat.entry({ id: 0, ...user('hello') });
  assert.deepEqual(rows(chat), ['user hello']);
  assert.ok(chat.thinking(chat.shown), 'until the agent says that it is done');
  chat.entry({ id: 1, ...agent('agent_start') });
  chat.entry({ id: 2, ...agent('agent_done') });
  assert.equal(chat.thinking(chat.shown), false);
  chat.answered(row, 'refused', 'late');
  assert.deepEqual(rows(chat), ['user hello'], 'an answer behind the entry changes nothing');
});

test('equal messages take their places one by one', () => {
  const chat = new Conversations();
  chat.say('again', 'n');
  chat.say('again', 'n');
  chat.entry({ id: 0, ...user('again') });
  assert.equal(chat.shown.rows.filter(({ sending }) => sending !== undefined).length, 1);
  chat.entry({ id: 1, ...user('again') });
  assert.deepEqual(chat.shown.rows.map(({ sending }) => sending), [undefined, undefined]);
});

test('a message of another tab than the one it was written in is found', () => {
  const chat = new Conversations();
  chat.say('there', 'n');
  chat.entry({ id: 0, ...user('there', 7) });
  assert.deepEqual([rows(chat, 0), rows(chat, 7)], [[], ['user there']]);
});

test('what is refused stays, to be sent again', () => {
  const chat = new Conversations();
  const row = chat.say('too much', 'n');
  chat.answered(row, 'refused', 'Queue full (max 5)');
  assert.equal(chat.thinking(chat.shown), false);
  assert.deepEqual([row.sending, row.note], ['refused', 'Queue full (max 5)']);
  chat.take(row);
  assert.deepEqual(rows(chat), []);
});

test('events stay in their own tab', () => {
  const chat = told(user('one', 1), user('two', 2), agent('agent_start', { tabId: 1 }), agent('agent_start', { tabId: 2 }), agent('text', { text: 'of two', tabId: 2 }), agent('agent_done', { tabId: 2 }), agent('text', { text: 'of one', tabId: 1 }));
  assert.deepEqual(rows(chat, 1), ['user one', 'text of one']);
  assert.deepEqual(rows(chat, 2), ['user two', 'text of two']);
  assert.deepEqual([chat.thinking(chat.tab(1)), chat.thinking(chat.tab(2))], [true, false]);
});

test('the tab that becomes active is shown, and what came elsewhere is marked', () => {
  const chat = new Conversations();
  assert.equal(chat.state({ activeTabId: 3, agentStatus: 'idle' }), true);
  assert.equal(chat.shown.id, 3);
  chat.entry({ id: 0, ...user('x', 4) });
  assert.ok(chat.tab(4).unread);
  chat.show(4);
  assert.equal(chat.tab(4).unread, false);
  assert.equal(chat.state({ activeTabId: 3, agentStatus: 'idle' }), false, 'a look elsewhere is the person’s own');
  assert.equal(chat.shown.id, 4);
  assert.equal(chat.state({ activeTabId: null }), true);
});

test('the sandbox’s word on whether it works wins over what was seen', () => {
  const chat = told(user('x'), agent('agent_start'));
  chat.state({ agentStatus: 'hung', activeTabId: 0 });
  assert.ok(chat.tab(0).hung);
  chat.state({ agentStatus: 'idle', activeTabId: 0 });
  assert.deepEqual([chat.tab(0).hung, chat.thinking(chat.tab(0))], [false, false]);
});

test('what comes twice, or without sense, changes nothing', () => {
  const chat = told(user('a'), agent('text', { text: 'b' }));
  chat.entry({ id: 0, ...user('a') });
  chat.entry({ id: 1.5, ...user('z') });
  chat.entry({ id: -1, ...user('z') });
  chat.entry({ id: 2, ...agent('something later') });
  assert.deepEqual(rows(chat), ['user a', 'text b']);
  assert.equal(chat.mark, 3);
});

test('an error ends the run and says why', () => {
  const chat = told(user('a'), agent('agent_start'), agent('agent_error', { error: 'Timed out after 300s' }));
  assert.deepEqual(rows(chat), ['user a', 'error Timed out after 300s']);
  assert.equal(chat.thinking(chat.tab(0)), false);
});

test('rows and tabs have a bound', () => {
  const chat = new Conversations();
  for (let id = 0; id < 1_000; id++) chat.entry({ id, ...user(`m${id}`, id < 700 ? 0 : id) });
  assert.equal(chat.tab(0).rows.length, 500);
  assert.ok(chat.tab(0).cut);
  assert.equal(chat.tab(0).rows[0]?.text, 'm200');
  assert.equal(chat.tab(710).rows.length, 0, 'what is shown nowhere went');
  assert.equal(chat.tab(999).rows.length, 1);
});

test('clearing keeps what nobody has yet', () => {
  const chat = told(user('a', 1), user('b', 2));
  const row = chat.say('c', 'n');
  chat.clear(chat.shown);
  chat.clear(chat.tab(1));
  assert.deepEqual([rows(chat, 1), rows(chat, 2), chat.shown.rows], [[], ['user b'], [row]]);
  assert.equal(chat.mark, 2);
});

test('what somebody else has cleared goes here, too', () => {
  const chat = told(user('a', 1), user('b', 2), user('c', 1));
  const row = chat.say('d', 'n');
  chat.state({ activeTabId: 0, availableFrom: 2 });
  assert.deepEqual([rows(chat, 1), rows(chat, 2), chat.shown.rows], [['user c'], [], [row]]);
});

test('tabs that were opened or closed are asked for, once', () => {
  const chat = new Conversations();
  chat.state({ activeTabId: 1, tabsRevision: 4 });
  assert.deepEqual([4, 5, 5].map((tabsRevision) => chat.state({ activeTabId: 1, tabsRevision })), [false, true, false]);
});

test('each tab is known to be at work, or not', () => {
  const chat = told(user('a', 1), agent('agent_start', { tabId: 1 }), user('b', 2), agent('agent_start', { tabId: 2 }));
  chat.state({ activeTabId: 1, agentStatus: 'processing', tabs: [{ id: 1, agentStatus: 'processing' }, { id: 3, agentStatus: 'hung' }] });
  assert.deepEqual([1, 2].map((id) => chat.thinking(chat.tab(id))), [true, false], 'the end of 2 was missed');
});

test('a question stands until it is answered, or nobody waits', () => {
  const ask = (more: Partial<Entry> = {}) => agent('question', { tool: 'Bash', input: 'ls', requestId: 'r1', ...more });
  const question = (...then: Omit<Entry, 'id'>[]) => told(user('a'), ask(), ...then).tab(0).rows.find(({ kind }) => kind === 'question')?.question;
  const open = question();
  assert.deepEqual([open?.id, open?.tool, open?.input, open?.state], ['r1', 'Bash', { command: 'ls' }, 'open']);
  assert.equal(question(agent('answered', { requestId: 'r2', outcome: 'allowed' }))?.state, 'open', 'of another one');
  assert.deepEqual(question(agent('answered', { requestId: 'r1', outcome: 'allowed', by: 'usr_bob' })), { ...open, state: 'decided', answer: { by: 'usr_bob', decision: 'allow_once' } });
  assert.deepEqual(question(agent('answered', { requestId: 'r1', outcome: 'denied', by: 'usr_bob' }))?.answer?.decision, 'deny');
  for (const { outcome, state } of [{ outcome: 'timeout', state: 'timeout' }, { outcome: 'withdrawn', state: 'cancelled' }, { outcome: 'something later', state: 'cancelled' }]) assert.equal(question(agent('answered', { requestId: 'r1', outcome }))?.state, state);
  assert.equal(question(agent('agent_done'))?.state, 'cancelled');
  assert.equal(question(agent('answered', { requestId: 'r1', outcome: 'denied' }), agent('agent_done'))?.state, 'decided');
});

test('what a tool is to do is shown as a whole, or said to be a part', () => {
  const shown = (tool: string, input: string, more: Partial<Entry> = {}) => told(agent('question', { tool, input, requestId: 'r', ...more })).tab(0).rows[0];
  assert.deepEqual(shown('Write', '{"file_path":"a","content":"b"}')?.question?.input, { file_path: 'a', content: 'b' });
  assert.deepEqual(shown('Bash', '{"a":1}')?.question?.input, { command: '{"a":1}' }, 'a command that looks like JSON is a command');
  assert.deepEqual(shown('Other', '[broken')?.question?.input, { command: '[broken' });
  assert.deepEqual([shown('Bash', 'ls')?.part, shown('Bash', 'ls', { cut: true })?.part], [undefined, true]);
});

test('what the person writes is for the tab that she sees', () => {
  const chat = new Conversations();
  chat.state({ activeTabId: 1 });
  chat.hold(true);
  assert.equal(chat.state({ activeTabId: 2 }), true);
  assert.deepEqual([chat.shown.id, chat.active], [1, 2]);
  chat.hold(false);
  chat.state({ activeTabId: 3 });
  assert.equal(chat.shown.id, 3);
});

test('no chip of a tab goes while the list is on its way', () => {
  const chat = new Conversations();
  const chips = () => chat.chips().map(({ id, title, shown, front, news }) => [id, title, shown ? 'shown' : '', front ? 'front' : '', news].join(' ').trim());
  const page = (id: number, title: string) => ({ id, title, url: '', conversationId: `c${id}` });
  chat.list([page(1, 'One'), page(2, 'Two')]);
  chat.state({ activeTabId: 1 });
  assert.ok(chat.knows);
  chat.entry({ id: 0, ...user('there', 5) });
  assert.equal(chat.knows, false, 'a tab that was never listed');
  chat.state({ activeTabId: 9, tabs: [{ id: 2, agentStatus: 'processing' }] });
  assert.deepEqual(chips(), ['1 One', '2 Two   busy', '5    unread', '9  shown front']);
  chat.list([page(2, 'Two'), page(9, 'Nine')]);
  assert.ok(chat.knows, 'what it doesn’t list is not asked for again and again');
  assert.deepEqual(chips(), ['2 Two   busy', '5    unread', '9 Nine shown front']);
  chat.entry({ id: 1, ...agent('question', { tool: 'Bash', input: 'ls', requestId: 'r', tabId: 2 }) });
  assert.deepEqual([chips()[0], chat.elsewhere?.id, chat.of('c9')?.id], ['2 Two   asks', 2, 9]);
  chat.show(2);
  assert.deepEqual([chips()[0], chat.elsewhere], ['2 Two shown  busy', undefined]);
});

test('what nobody has outlives the connection', () => {
  const chat = new Conversations();
  chat.state({ activeTabId: 1 });
  const [lost, refused] = [chat.say('a', 'n1'), chat.say('b', 'n2')];
  chat.answered(refused, 'refused', 'no');
  chat.answered(chat.say('c', 'n3'), 'working');
  assert.deepEqual(chat.unsent, [{ tab: 1, row: lost }, { tab: 1, row: refused }]);
  const next = new Conversations();
  next.restore(chat.unsent);
  next.state({ activeTabId: 1 });
  assert.deepEqual(next.shown.rows.map(({ text, sending, name }) => [text, sending, name]), [['a', 'lost', 'n1'], ['b', 'refused', 'n2']]);
});

test('what is missing is said', () => {
  const chat = told(user('a', 1));
  chat.gap();
  assert.ok(chat.tab(1).cut);
});
