package mcp

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	// beatEvery is the time between comments on an idle event stream. Clients and
	// proxies give up on silence after minutes.
	beatEvery = 20 * time.Second
	// flushAfter is how long a piece of an answer waits for the rest. Most answers
	// are complete by then and are one write with a length.
	flushAfter = 2 * time.Millisecond
	// writeTimeout bounds the time that a client takes to read an event.
	writeTimeout = 30 * time.Second
)

var errFinished = errors.New("the request is over")

// A sink writes the answer to a request. Answers and comments may be written
// concurrently.
type sink struct {
	// Static after construction.
	http.ResponseWriter
	control *http.ResponseController
	endless bool // an event stream that lasts until the client ends it

	mu sync.Mutex
	// Guarded by mu.
	finished bool
	flushing *time.Timer // runs while a piece waits for the rest; nil: never
	flushed  bool        // a piece has been sent: later ones are sent at once
	timer    *time.Timer // of the next comment
	beats    int         // number of users that want comments
}

func newSink(w http.ResponseWriter, endless bool) *sink {
	return &sink{ResponseWriter: w, control: http.NewResponseController(w), endless: endless}
}

func (s *sink) WriteHeader(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		s.ResponseWriter.WriteHeader(status)
	}
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		return 0, errFinished
	}
	if s.endless && s.beats == 0 {
		s.startBeat() // the header is out
	}
	s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	return s.ResponseWriter.Write(p)
}

// FlushError is Flush for http.ResponseController.
func (s *sink) FlushError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.finished:
		return errFinished
	case s.endless || s.flushed:
		return s.control.Flush()
	case s.flushing == nil:
		s.flushing = time.AfterFunc(flushAfter, s.flush)
	}
	return nil
}

// flush sends a piece that has waited for flushAfter.
func (s *sink) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.finished {
		s.flushed = true
		s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
		s.control.Flush()
	}
}

// Unwrap is for http.ResponseController.
func (s *sink) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// beat writes comments while a tool works, until stop is called.
func (s *sink) beat() (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.startBeat()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.beats--; s.beats == 0 {
			s.timer.Stop()
		}
	}
}

// startBeat starts the comments. The caller holds mu.
func (s *sink) startBeat() {
	s.beats++
	if s.timer == nil {
		s.timer = time.AfterFunc(beatEvery, s.comment)
	} else {
		s.timer.Reset(beatEvery)
	}
}

// comment writes an SSE comment, which clients skip.
func (s *sink) comment() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished || s.beats == 0 {
		return
	}
	s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := s.ResponseWriter.Write([]byte(": working\n\n")); err == nil {
		s.flushed = true
		s.control.Flush()
	}
	s.timer.Reset(beatEvery)
}

// finish stops all later writes, because the connection's next request may be
// another's.
func (s *sink) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
	for _, timer := range []*time.Timer{s.timer, s.flushing} {
		if timer != nil {
			timer.Stop()
		}
	}
	s.control.SetWriteDeadline(time.Time{})
}
