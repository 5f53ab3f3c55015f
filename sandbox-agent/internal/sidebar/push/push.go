// Package push writes streams of server-sent events whose source holds what is to
// be sent: a reader that is slow costs its own connection and no memory.
package push

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// heartbeat is how often a comment is sent (seed 000).
const heartbeat = 15 * time.Second

// A Source is what a stream sends.
type Source interface {
	// Next returns what is to be sent now, perhaps nothing, and what is closed as
	// soon as there may be more. over: nothing follows.
	Next() (events []byte, changed <-chan struct{}, over bool)
}

// Serve sends what a source has until closing is closed, the client leaves, or the
// source is over. It looks at the source at each heartbeat, too, for what time changes.
func Serve(closing <-chan struct{}, w http.ResponseWriter, r *http.Request, s Source) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method == http.MethodHead {
		return
	}
	out := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	events, changed, over := s.Next()
	for {
		if _, err := w.Write(events); err != nil || out.Flush() != nil || over {
			return
		}
		events = nil
		select {
		case <-changed:
		case <-beat.C:
			events = []byte(": heartbeat\n\n")
		case <-r.Context().Done():
			return
		case <-closing:
			return
		}
		var more []byte
		more, changed, over = s.Next()
		events = append(events, more...)
	}
}

// Append appends an event with data, an object, as JSON that mask has seen; id 0
// stands for none.
func Append(to []byte, name string, id uint64, data any, mask func([]byte) []byte) []byte {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // what is sent can be encoded
	}
	if id != 0 {
		to = fmt.Appendf(to, "id: %d\n", id)
	}
	text = bytes.ReplaceAll(mask(text), []byte("\n"), nil) // there is none
	return fmt.Appendf(to, "event: %s\ndata: %s\n\n", name, text)
}
