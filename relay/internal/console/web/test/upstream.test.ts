import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bufferedBytes, pieceBytes, queueBytes, Upstream } from '../src/upstream.ts';

class FakeWire {
  bufferedAmount = 0;
  most = 0;
  pieces: Uint8Array[] = [];

  send(data: Uint8Array): void {
    this.pieces.push(data.slice());
    this.bufferedAmount += data.length;
    this.most = Math.max(this.most, this.bufferedAmount);
  }

  get all(): Buffer {
    return Buffer.concat(this.pieces);
  }
}

function make() {
  const wire = new FakeWire();
  const timers: (() => void)[] = [];
  const upstream = new Upstream(wire, (run) => timers.push(run));
  const drain = () => {
    for (let run = timers.shift(); run !== undefined; run = timers.shift()) {
      wire.bufferedAmount = 0;
      run();
    }
  };
  return { wire, upstream, timers, drain };
}

const bytes = (text: string) => new TextEncoder().encode(text);

test('a key leaves at once', () => {
  const { wire, upstream } = make();
  assert.ok(upstream.push(bytes('x')));
  assert.equal(wire.all.toString(), 'x');
});

test('a large paste leaves whole, in pieces, no faster than the socket takes it', () => {
  const { wire, upstream, timers, drain } = make();
  const paste = new Uint8Array((1 << 20) + 7).map((_, i) => i * 31);
  assert.ok(upstream.push(paste));
  assert.ok(upstream.push(bytes('!')));
  assert.equal(timers.length, 1);
  drain();
  assert.equal(upstream.pending, 0);
  assert.ok(wire.all.equals(Buffer.concat([paste, bytes('!')])));
  assert.ok(wire.pieces.every((piece) => piece.length <= pieceBytes));
  assert.ok(wire.most <= bufferedBytes + pieceBytes);
});

test('what would overfill the queue is refused whole', () => {
  const { wire, upstream, drain } = make();
  assert.equal(upstream.push(new Uint8Array(queueBytes + 1)), false);
  assert.equal(wire.pieces.length, 0);
  assert.ok(upstream.push(new Uint8Array(queueBytes)));
  drain();
  assert.equal(wire.all.length, queueBytes);
});

test('an interrupt drops what waits and closes a bracketed paste', () => {
  const { wire, upstream, drain } = make();
  upstream.push(bytes(`\x1b[200~${'y'.repeat(1 << 20)}\x1b[201~`));
  const dropped = upstream.interrupt();
  assert.ok(dropped > 0);
  upstream.push(bytes('\x03'));
  drain();
  assert.ok(wire.all.toString().endsWith('y\x1b[201~\x03'));
  assert.equal(upstream.interrupt(), 0);
});
