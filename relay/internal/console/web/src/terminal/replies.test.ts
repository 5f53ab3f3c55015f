import assert from 'node:assert/strict';
import { test } from 'node:test';
import { automatic, fromPointer } from './replies.ts';

test('what xterm.js sends by itself, or for the mouse, is told from typing', () => {
  assert.ok(automatic('\x1b[I') && automatic('\x1b[O'));
  assert.ok(!automatic('\x1b[1;2R')); // Shift+F3
  assert.ok(fromPointer('\x1b[<0;10;5M') && fromPointer('\x1b[M !!'));
  assert.ok(!fromPointer('\x1b[A'));
});
