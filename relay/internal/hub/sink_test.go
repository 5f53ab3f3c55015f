package hub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// Kinds of items beside the types of text frames.
const (
	output = "output"
	closed = "closed"
)

// An item is one frame that a socket got.
type item struct {
	kind  string
	bytes []byte // output, the JSON of a text frame, or why it was closed
	code  int    // of closed
}

func (it item) String() string {
	if it.kind == closed {
		return fmt.Sprint(closed, " ", it.code)
	}
	return it.kind + " " + string(it.bytes[:min(len(it.bytes), 200)])
}

func (it item) decode(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(it.bytes, v); err != nil {
		t.Fatalf("%s: %v", it, err)
	}
}

// A sink is a socket that records, and can stop taking anything.
type sink struct {
	changed chan struct{}

	// Guarded by mu.
	mu     sync.Mutex
	items  []item
	writes int           // calls of WriteFrames with something in it
	gate   chan struct{} // while not nil, writes wait for it to close
	heard  time.Time
	pings  int
}

// block makes writes wait, or lets them go.
func (s *sink) block(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate != nil {
		close(s.gate)
		s.gate = nil
	}
	if on {
		s.gate = make(chan struct{})
	}
}

func (s *sink) take() (item, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.items) == 0 {
		return item{}, false
	}
	it := s.items[0]
	s.items = s.items[1:]
	return it, true
}

func (s *sink) add(it item) {
	s.items = append(s.items, it)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// WriteFrames implements Sink.
func (s *sink) WriteFrames(frames net.Buffers) error {
	var all []byte
	for _, b := range frames {
		all = append(all, b...)
	}
	if len(all) == 0 {
		return nil
	}
	s.mu.Lock()
	gate := s.gate
	s.writes++
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(all) > 0 {
		payload, rest, err := relaytest.Frame(all)
		if err != nil {
			return err
		}
		it := item{kind: output, bytes: payload}
		if bytes.HasPrefix(payload, []byte(`{"type":"presence"`)) { // comes when it comes, often and long
			all = rest
			continue
		}
		if all[0] == 0x81 {
			var head struct{ Type string }
			if err := json.Unmarshal(payload, &head); err != nil {
				return err
			}
			it.kind = head.Type
		}
		s.add(it)
		all = rest
	}
	return nil
}

// Ping implements Sink.
func (s *sink) Ping() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pings++
	return nil
}

// LastHeard implements Sink.
func (s *sink) LastHeard() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
}

// Close implements Sink.
func (s *sink) Close(code int, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(item{kind: closed, code: code, bytes: []byte(reason)})
}

// ends passes over all but the end of the socket.
func (x *watcher) ends() item {
	x.t.Helper()
	for {
		if it := x.next(); it.kind == closed {
			return it
		}
	}
}
