import assert from 'node:assert/strict';
import { test } from 'node:test';
import { maxInputBytes } from '../protocol.ts';
import { Outbox, queueBytes, unackedBytes, type Frame } from './outbox.ts';

const bytes = (text: string) => new TextEncoder().encode(text);
const text = (frames: readonly Frame[]) => Buffer.concat(frames.map((f) => f.bytes)).toString();

// sent takes everything that may be sent now.
function sent(outbox: Outbox): Frame[] {
  const frames: Frame[] = [];
  for (let frame = outbox.next(); frame !== undefined; frame = outbox.next()) frames.push(frame);
  return frames;
}

test('a key leaves at once, numbered from 1', () => {
  const outbox = new Outbox();
  assert.ok(outbox.push(bytes('x'), 3, true));
  assert.deepEqual(sent(outbox), [{ seq: 1, term: 3, bytes: bytes('x') }]);
  assert.equal(outbox.pending, 1);
  outbox.acked(1);
  assert.equal(outbox.pending, 0);
});

test('what was not acknowledged is sent again, with its numbers, before anything new', () => {
  const outbox = new Outbox();
  for (const key of 'abc') {
    outbox.push(bytes(key), 1, true);
    sent(outbox);
  }
  outbox.acked(1);
  outbox.push(bytes('d'), 1, false);
  assert.deepEqual(outbox.again().map((f) => f.seq), [2, 3]);
  assert.deepEqual(sent(outbox).map((f) => f.seq), [4]);
  assert.equal(outbox.refused(3), 1);
  assert.equal(outbox.refused(3), 0);
  assert.equal(text(outbox.again()), 'bd');
  outbox.acked(9);
  assert.equal(outbox.pending, 0);
});

test('a large paste leaves whole, in pieces, never more than the bound unacknowledged', () => {
  const outbox = new Outbox();
  const paste = new Uint8Array((1 << 20) + 7).map((_, i) => i * 31);
  assert.ok(outbox.push(paste, 1, true));
  assert.ok(outbox.push(bytes('!'), 1, true));
  const all: Frame[] = [];
  for (let last = 0; outbox.pending > 0; ) {
    const frames = sent(outbox);
    assert.ok(frames.length > 0);
    assert.ok(outbox.again().reduce((sum, f) => sum + f.bytes.length, 0) <= unackedBytes);
    assert.ok(outbox.progress >= 0 && outbox.progress <= 1);
    for (const frame of frames) {
      assert.equal(frame.seq, ++last);
      assert.ok(frame.bytes.length <= maxInputBytes);
    }
    all.push(...frames);
    outbox.acked(last);
  }
  assert.ok(Buffer.concat(all.map((f) => f.bytes)).equals(Buffer.concat([paste, bytes('!')])));
});

test('without a connection keys are kept up to the bound, and leave as one frame', () => {
  const outbox = new Outbox();
  for (const key of 'ls -l\r') assert.ok(outbox.push(bytes(key), 1, false));
  assert.equal(outbox.push(new Uint8Array(unackedBytes), 1, false), false);
  assert.equal(outbox.waiting, 6);
  assert.deepEqual(sent(outbox).map((f) => text([f])), ['ls -l\r']);
});

test('what would overfill the queue is refused whole', () => {
  const outbox = new Outbox();
  assert.equal(outbox.push(new Uint8Array(queueBytes + 1), 1, true), false);
  assert.equal(outbox.pending, 0);
  assert.ok(outbox.push(new Uint8Array(queueBytes), 1, true));
});

test('input of another term is dropped, not sent', () => {
  const outbox = new Outbox();
  outbox.push(bytes('sent'), 1, true);
  sent(outbox);
  outbox.push(bytes('old'), 1, false);
  outbox.push(bytes('new'), 2, false);
  assert.equal(outbox.retain([2]), 3);
  assert.equal(text(outbox.again()), 'sent'); // the sandbox knows whether it was written
  assert.deepEqual(sent(outbox).map((f) => [f.seq, f.term, text([f])]), [[2, 2, 'new']]);
  outbox.push(bytes('more'), 2, false);
  assert.equal(outbox.retain([]), 4);
});

test('frames do not mix terms', () => {
  const outbox = new Outbox();
  outbox.push(bytes('a'), 1, false);
  outbox.push(bytes('b'), 2, false);
  assert.deepEqual(sent(outbox).map((f) => [f.term, text([f])]), [[1, 'a'], [2, 'b']]);
});

test('an interrupt drops what waits and closes a bracketed paste', () => {
  const outbox = new Outbox();
  outbox.push(bytes(`\x1b[200~${'y'.repeat(1 << 20)}\x1b[201~`), 1, true);
  const begun = sent(outbox);
  assert.ok(outbox.interrupt() > 0);
  outbox.push(bytes('\x03'), 1, true);
  outbox.acked(begun.length);
  assert.equal(text(sent(outbox)), '\x1b[201~\x03');
  assert.equal(outbox.interrupt(), 0);
  assert.equal(outbox.progress, 1);
});
