package terminal

import (
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/bytelog"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// A follower reads the log inside the agent: a recording, or what is kept on
// disk. By itself it holds nothing back.
type follower struct {
	// Static after construction.
	terminal *Terminal
	wake     chan struct{} // 1 element: there is something for next

	buf    []byte         // owned by the goroutine that follows
	cursor bytelog.Cursor // guarded by terminal.mu
}

func newFollower(t *Terminal, cursor bytelog.Cursor) follower {
	return follower{terminal: t, wake: make(chan struct{}, 1), cursor: cursor}
}

// A followed is the next thing in the log: bytes, a size, or the end.
type followed struct {
	offset  uint64
	at      time.Time // not before it was printed
	bytes   []byte    // valid until the next call
	resized *protocol.Resized
	exited  bool

	// Of a recording.
	check   []*redact.Set // it is to be looked through for these
	restart bool          // what was recorded before is to be discarded
}

// next returns the next item, of at most limit bytes, false when there is none
// now. It fails with [bytelog.ErrGap] when the log no longer holds it. It is
// called with terminal.mu held.
func (f *follower) next(limit int) (followed, bool, error) {
	t := f.terminal
	next := followed{offset: f.cursor.Offset(), at: t.printed}
	item, ok, err := t.output.Next(&f.cursor, limit)
	if !ok || err != nil {
		return followed{}, false, err
	}
	next.resized, next.exited = item.Resized, item.Exited != nil
	if item.Bytes != nil {
		f.buf = append(f.buf[:0], item.Bytes...)
		next.bytes = f.buf
	} else {
		next.at = time.Now()
	}
	return next, true, nil
}

func (f *follower) notify() {
	select {
	case f.wake <- struct{}{}:
	default: // it has yet to look
	}
}

// follow adds f to those who are told of output, and run to what the terminal's
// end waits for; run returns soon after the end of the log. It is called with mu
// held, before the terminal has ended.
func (t *Terminal) follow(f *follower, run func()) {
	t.following[f] = struct{}{}
	t.life.followers.Go(run)
}
