package mcp

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	// beatEvery is how often a stream of events without any says that it is
	// there: clients and proxies give up on silence after minutes.
	beatEvery = 20 * time.Second
	// flushAfter is how long a piece of an answer may wait for the rest. Most are
	// complete by then, and are one write with a length, which travels as one.
	flushAfter = 2 * time.Millisecond
	// writeTimeout bounds the time that a client takes to read an event.
	writeTimeout = 30 * time.Second
)

var errFinished = errors.New("the request is over")

// A sink is where the answer to a request goes. It may be written to while a
// comment is.
type sink struct {
	// Static after construction.
	http.ResponseWriter
	control *http.ResponseController
	endless bool // it is a stream of events for as long as the client likes

	mu sync.Mutex
	// Guarded by mu.
	finished bool
	flushing *time.Timer // of what waits for the rest; nil: nothing has
	flushed  bool        // a piece of the answer is out: the others follow at once
	timer    *time.Timer // of the next comment
	beats    int         // who wants comments
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

// flush sends what has waited for the rest long enough.
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

// beat has comments written while a tool works, until the function that it
// returns is called.
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

// startBeat has comments written. The caller holds mu.
func (s *sink) startBeat() {
	s.beats++
	if s.timer == nil {
		s.timer = time.AfterFunc(beatEvery, s.comment)
	} else {
		s.timer.Reset(beatEvery)
	}
}

// comment writes what clients skip.
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

// finish keeps who still writes from the connection, whose next request may be
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
