package agentstream

import (
	"bytes"
	"context"
	"io"
	"sync"

	"github.com/fairlead/fairlead/deploy/program/hops"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/roster"
)

// maxOutbox bounds the frames that wait for the agent. Credits bound input, and
// everything else is small, so only a dead tunnel fills it.
const maxOutbox = 1 << 20

// An Outbox holds the frames for an agent until its stream takes them. Use Init.
type Outbox struct {
	// Static after Init.
	stream io.Writer
	life   Life          // of the stream
	ready  chan struct{} // something waits in out

	// Guarded by mu.
	mu      sync.Mutex
	out     []byte // frames to be written
	aside   int    // bytes of out that don't count for maxOutbox
	spare   []byte // the last written buffer, for reuse
	writing bool   // a write is in progress
}

// Init sets where frames go. The outbox ends life when the agent reads too slowly,
// or a write has failed: then the stream is to be closed. Without a stream frames
// wait.
func (o *Outbox) Init(stream io.Writer, life Life) {
	o.stream, o.life, o.ready = stream, life, make(chan struct{}, 1)
}

// Send queues m and has it written soon. It never blocks.
func (o *Outbox) Send(m protocol.Message) {
	o.Queue(m)
	o.Rouse()
}

// Queue adds m to the frames to be written; Flush or Rouse must follow. If the
// agent reads so slowly that the outbox is full, it ends the stream, which the
// reader notices.
func (o *Outbox) Queue(m protocol.Message) {
	o.mu.Lock()
	defer o.mu.Unlock()
	out, err := protocol.Append(o.out, m)
	if err != nil || len(out)-o.aside > maxOutbox {
		o.life.End()
		return
	}
	o.out = out
}

// Ask asks about a grant. The roster's window bounds the questions, not
// maxOutbox: many viewers that return with a stream must not end it.
func (o *Outbox) Ask(h roster.Handle, token string) {
	m := protocol.GrantAdd{Handle: uint64(h), Grant: token}
	o.mu.Lock()
	defer o.mu.Unlock()
	out, err := protocol.Append(o.out, m)
	if err != nil {
		o.life.End()
		return
	}
	o.aside += len(out) - len(o.out)
	o.out = out
	o.Rouse()
}

// Forget says that a grant isn't used any more.
func (o *Outbox) Forget(id protocol.GrantID) { o.Send(protocol.GrantDrop{GrantID: id}) }

// Rouse makes Write flush.
func (o *Outbox) Rouse() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// Flush writes all queued frames, unless somebody else is doing so. It may
// block on the tunnel.
func (o *Outbox) Flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.writing && o.stream != nil && len(o.out) > 0 {
		buf := o.out
		o.out, o.aside, o.writing = o.spare[:0], 0, true
		o.mu.Unlock()
		hops.Pass(hops.StreamOut)
		_, err := o.stream.Write(buf)
		o.mu.Lock()
		o.spare, o.writing = buf, false
		if err != nil {
			o.life.End()
			return
		}
	}
}

// Waiting returns a copy of the frames that wait, Take removes them. Both are for
// tests.
func (o *Outbox) Waiting() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.out)
}

func (o *Outbox) Take() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.out
	o.out, o.aside = nil, 0
	return out
}

// Write flushes when roused, until ctx ends.
func (o *Outbox) Write(ctx context.Context) {
	for {
		select {
		case <-o.ready:
			o.Flush()
		case <-ctx.Done():
			return
		}
	}
}
