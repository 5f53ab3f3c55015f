package feed

import (
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestFound12ASandboxLeavesRoom: however many sandboxes take all they can get,
// each leaves room for one more.
func TestFound12ASandboxLeavesRoom(t *testing.T) {
	m := NewMemory(nil)
	const piece = lastPart
	for i := range 7 {
		sandbox := protocol.SandboxID(fmt.Sprint("sb_", i))
		n := 0
		for m.take(sandbox, piece) {
			n += piece
		}
		if least := keyframeBytes>>(i+1) - piece; n < least || n > keyframeBytes/2 {
			t.Errorf("sandbox %d gets %d bytes, want %d at least", i, n, least)
		}
	}
	for sandbox, n := range m.of {
		m.add(sandbox, -n)
	}
	if m.held != 0 || len(m.of) != 0 || m.Left() != protocol.RelayRingBytes {
		t.Errorf("%d bytes of %d are left over", m.held, len(m.of))
	}
}

// TestFound12OldKeyframesGiveWay: those that are merely kept don't keep new ones
// out.
func TestFound12OldKeyframesGiveWay(t *testing.T) {
	m := NewMemory(nil)
	last := newFeed()
	last.memory, last.sandbox = m, "sb_old"
	kept := func(f *Feed, n int) bool {
		if !m.take(f.sandbox, n) {
			return false
		}
		c := &charge{memory: m, sandbox: f.sandbox, bytes: n}
		c.holders.Store(1)
		f.mu.Lock()
		f.cache(WithHistory, &Keyframe{sort: WithHistory, charge: c})
		f.mu.Unlock()
		c.release()
		return true
	}
	var feeds []*Feed
	for i := range 100 {
		f := newFeed()
		f.memory, f.sandbox = m, protocol.SandboxID(fmt.Sprint("sb_", i%3))
		if feeds = append(feeds, f); !kept(f, 2<<20) {
			t.Fatalf("keyframe %d finds no room", i)
		}
	}
	if !kept(last, protocol.MaxKeyframeBytes) {
		t.Error("the largest finds no room")
	}
	if m.held > keyframeBytes {
		t.Errorf("%d bytes are held", m.held)
	}
	if feeds[0].newest[WithHistory] != nil || feeds[99].newest[WithHistory] == nil {
		t.Error("it was not the oldest that gave way")
	}
	for _, f := range append(feeds, last) {
		f.Close()
	}
	if m.held != 0 || m.cached.Len() != 0 {
		t.Errorf("%d bytes are left over, %d are cached", m.held, m.cached.Len())
	}
}
