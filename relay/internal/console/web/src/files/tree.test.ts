import assert from 'node:assert/strict';
import { test } from 'node:test';
import { join, nameOf, nameProblem, order, pageSize, parentOf, Tree, within, type Entry, type FileKind } from './tree.ts';

const entry = (path: string, type: FileKind = 'file'): Entry => ({ name: nameOf(path), path, type, size: 1, modified: 0, target: '', etag: '' });
const shown = (tree: Tree) => tree.rows().map((row) => (row.kind === 'entry' ? `${'  '.repeat(row.depth)}${row.entry.name}` : `${'  '.repeat(row.depth)}(${row.kind})`));

function sample(): Tree {
  const tree = new Tree();
  tree.enter('/');
  tree.list('/', [entry('/b.txt'), entry('/src', 'dir'), entry('/a10'), entry('/a9')]);
  tree.toggle('/src', true);
  tree.list('/src', [entry('/src/deep', 'dir'), entry('/src/main.go')]);
  tree.toggle('/src/deep', true);
  tree.list('/src/deep', [entry('/src/deep/x')]);
  return tree;
}

test('paths', () => {
  assert.deepEqual(['/', '/a', '/a/b'].map(parentOf), ['/', '/', '/a']);
  assert.deepEqual(['/', '/a', '/a/b'].map(nameOf), ['', 'a', 'b']);
  assert.deepEqual([join('/', 'a'), join('/a', 'b')], ['/a', '/a/b']);
  assert.ok(within('/a/b', '/a') && within('/a', '/a') && within('/a', '/'));
  assert.ok(!within('/ab', '/a') && !within('/', '/a'));
});

test('names that no file can have', () => {
  for (const name of ['', '.', '..', 'a/b', 'a\0', 'é'.repeat(128)]) assert.notEqual(nameProblem(name), '', JSON.stringify(name));
  for (const name of ['a', '...', ' ', 'a\\b', '-rf', 'é'.repeat(127)]) assert.equal(nameProblem(name), '', JSON.stringify(name));
});

test('folders come first, numbers as people count', () => {
  const sorted = [entry('/b'), entry('/a10'), entry('/z', 'dir'), entry('/A9'), entry('/a9')].sort(order).map((e) => e.name);
  assert.deepEqual(sorted, ['z', 'A9', 'a9', 'a10', 'b']);
});

test('what is open is drawn, what was never read is missing', () => {
  const tree = sample();
  assert.deepEqual(shown(tree), ['src', '  deep', '    x', '  main.go', 'a9', 'a10', 'b.txt']);
  tree.toggle('/src', false);
  assert.deepEqual(shown(tree), ['src', 'a9', 'a10', 'b.txt']);
  assert.deepEqual(tree.visible(), ['/']);
  tree.toggle('/src', true);
  assert.deepEqual(tree.visible().sort(), ['/', '/src', '/src/deep']); // open as it was
  assert.deepEqual(tree.missing(), []);
  tree.list('/', [entry('/src', 'dir'), entry('/new', 'dir')]);
  tree.toggle('/new', true);
  assert.deepEqual(tree.missing(), ['/new']);
  assert.deepEqual(shown(tree).slice(0, 2), ['new', '  (note)']);
});

test('a folder of its own, and back up', () => {
  const tree = sample();
  tree.enter('/src');
  assert.deepEqual(shown(tree), ['deep', '  x', 'main.go']);
  assert.deepEqual(tree.visible().sort(), ['/src', '/src/deep']);
  tree.forget('/src'); // deleted
  assert.equal(tree.root, '/');
});

test('a folder that is gone is forgotten with all in it', () => {
  const tree = sample();
  tree.list('/', [entry('/a9'), entry('/src')]); // a file now
  assert.deepEqual(shown(tree), ['a9', 'src']);
  tree.list('/', [entry('/src', 'dir')]);
  assert.deepEqual(shown(tree), ['src']); // closed, as a new one is
});

test('changes matter where a folder was read', () => {
  const tree = sample();
  assert.equal(tree.stale('/src/main.go'), '/src');
  assert.equal(tree.stale('/new'), '/');
  assert.equal(tree.stale('/elsewhere/x'), undefined);
  tree.toggle('/src', false);
  assert.deepEqual(tree.reread(), ['/']); // the others are read when they are opened
  tree.toggle('/src', true);
  assert.deepEqual(tree.missing(), ['/src', '/src/deep'].filter((f) => f === '/src' || tree.visible().includes(f)));
});

test('a folder that can not be read says so and keeps what was known', () => {
  const tree = sample();
  tree.fail('/src/deep', 'no');
  assert.deepEqual(shown(tree).slice(0, 4), ['src', '  deep', '    (note)', '    x']);
  tree.list('/src/deep', []);
  const note = tree.rows()[2];
  assert.equal(note?.kind === 'note' && note.text, 'Empty');
});

test('a large folder is drawn in parts', () => {
  const tree = new Tree();
  tree.enter('/');
  tree.list('/', Array.from({ length: pageSize + 7 }, (_, i) => entry(`/f${i}`)));
  let rows = tree.rows();
  const last = rows.at(-1);
  assert.equal(rows.length, pageSize + 1);
  assert.equal(last?.kind === 'more' && last.left, 7);
  tree.more('/');
  rows = tree.rows();
  assert.equal(rows.length, pageSize + 7);
});

test('whatever is listed, opened and forgotten, nothing is drawn twice', () => {
  let seed = Number(process.env['SEED'] ?? Date.now() % 1e9);
  console.log('SEED', seed);
  const random = (n: number) => (seed = (seed * 1103515245 + 12345) % 2147483648) % n;
  const tree = new Tree();
  tree.enter('/');
  const folders = ['/', '/a', '/a/b', '/a/b/c', '/d'];
  for (let step = 0; step < 3_000; step++) {
    const folder = folders[random(folders.length)] ?? '/';
    switch (random(6)) {
      case 0: tree.enter(folder); break;
      case 1: tree.toggle(folder, random(2) === 0); break;
      case 2: tree.forget(folder); break;
      case 3: tree.reread(); break;
      default: tree.list(folder, ['a', 'b', 'c', 'd'].filter(() => random(2) === 0).map((name) => entry(join(folder, name), random(3) === 0 ? 'file' : 'dir')));
    }
    const rows = tree.rows();
    assert.equal(new Set(rows.map((row) => `${row.kind} ${row.key}`)).size, rows.length, `step ${step}`);
    for (const row of rows) assert.ok(row.kind !== 'entry' || within(row.entry.path, tree.root), `step ${step}`);
    assert.ok(tree.visible().every((path) => within(path, tree.root)), `step ${step}`);
  }
});
