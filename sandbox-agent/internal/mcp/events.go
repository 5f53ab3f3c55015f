package mcp

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/eventlog"
)

const (
	// maxHeldBytes bounds what is kept for clients that reconnect, of all
	// sessions, maxHeldPerSession of one. The oldest answers go first.
	maxHeldBytes      = 32 << 20
	maxHeldPerSession = 4 << 20
	maxHeldStreams    = 64 // of a session
	// heldFor is how long an answer is kept.
	heldFor = 15 * time.Minute
)

var errGone = errors.New("those events are not kept any more")

// An eventStore keeps the last events of each stream. A client whose connection
// or relay failed can then reconnect and read the answers to its calls. It is
// an sdk.EventStore.
type eventStore struct {
	mu sync.Mutex
	// Guarded by mu.
	sessions map[string]*heldSession
	bytes    int
}

type heldSession struct {
	streams []*heldStream // the oldest first
	bytes   int
}

// A heldStream holds what was sent in answer to one request or, without an id,
// outside all answers.
type heldStream struct {
	id     string
	events *eventlog.Log[[]byte] // offsets are the SDK's indexes; the store bounds it
	at     time.Time             // of the last event
}

func newEventStore() *eventStore { return &eventStore{sessions: make(map[string]*heldSession)} }

// Open prepares for a stream.
func (s *eventStore) Open(_ context.Context, session, stream string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open(session, stream)
	return nil
}

// open returns a stream, which it makes if missing. The caller holds mu.
func (s *eventStore) open(session, stream string) (*heldSession, *heldStream) {
	in := s.sessions[session]
	if in == nil {
		in = &heldSession{}
		s.sessions[session] = in
	}
	for _, h := range slices.Backward(in.streams) {
		if h.id == stream {
			return in, h
		}
	}
	h := &heldStream{id: stream, at: time.Now(), events: eventlog.New[[]byte](protocol.Position{}, eventlog.Bound{})}
	in.streams = append(in.streams, h)
	return in, h
}

// Append keeps an event.
func (s *eventStore) Append(_ context.Context, session, stream string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	in, h := s.open(session, stream)
	if stream == "" {
		// Every event here says that a list is outdated, so the last one suffices.
		s.forget(in, h)
	}
	h.events.Append(data, len(data))
	h.at = time.Now()
	s.count(in, len(data))
	for in.bytes > maxHeldPerSession || len(in.streams) > maxHeldStreams {
		if !s.dropOldest(in, h) {
			break
		}
	}
	for s.bytes > maxHeldBytes {
		var largest *heldSession
		for _, other := range s.sessions {
			if largest == nil || other.bytes > largest.bytes {
				largest = other
			}
		}
		if !s.dropOldest(largest, h) {
			break
		}
	}
	return nil
}

// count notes n more bytes, or fewer, of a session. The caller holds mu.
func (s *eventStore) count(in *heldSession, n int) { s.bytes, in.bytes = s.bytes+n, in.bytes+n }

// forget drops h's events and keeps h. The caller holds mu.
func (s *eventStore) forget(in *heldSession, h *heldStream) {
	s.count(in, -h.events.Bytes())
	h.events.DropBefore(h.events.Next())
}

// dropOldest drops the oldest answer of a session, except used. The caller
// holds mu.
func (s *eventStore) dropOldest(in *heldSession, used *heldStream) bool {
	for i, h := range in.streams {
		if h != used && h.id != "" {
			s.forget(in, h)
			in.streams = slices.Delete(in.streams, i, i+1)
			return true
		}
	}
	return false
}

// After yields the events of a stream that come after index.
func (s *eventStore) After(_ context.Context, session, stream string, index int) iter.Seq2[[]byte, error] {
	events, err := s.after(session, stream, index)
	return func(yield func([]byte, error) bool) {
		if err != nil {
			yield(nil, err)
			return
		}
		for _, data := range events {
			if !yield(data, nil) {
				return
			}
		}
	}
}

func (s *eventStore) after(session, stream string, index int) ([][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.sessions[session]
	if in == nil {
		return nil, errGone
	}
	for _, h := range in.streams {
		if h.id != stream {
			continue
		}
		from := uint64(max(index+1, 0))
		if from < h.events.First() && stream != "" {
			return nil, errGone
		}
		var events [][]byte
		for at, data := range h.events.All() {
			if at >= from {
				events = append(events, data)
			}
		}
		return events, nil
	}
	return nil, errGone
}

// SessionClosed forgets a session.
func (s *eventStore) SessionClosed(_ context.Context, session string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.sessions[session]; in != nil {
		s.bytes -= in.bytes
		delete(s.sessions, session)
	}
	return nil
}

// sweep drops old answers.
func (s *eventStore) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, in := range s.sessions {
		in.streams = slices.DeleteFunc(in.streams, func(h *heldStream) bool {
			old := h.id != "" && now.Sub(h.at) >= heldFor
			if old {
				s.forget(in, h)
			}
			return old
		})
	}
}

var _ sdk.EventStore = (*eventStore)(nil)
