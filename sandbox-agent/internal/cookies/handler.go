package cookies

import (
	"net/http"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/reply"
)

// readTimeout bounds how long a body may take to come.
const readTimeout = 10 * time.Minute

// Handler takes envelopes: POST /sync/{sandbox}/{address}, and nothing else. Who asks
// has no other credential than what the envelope is sealed with.
func (s *Sink) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := s.receive(w, r)
		s.o.Metrics.answered(err)
		w.Header().Set("Cache-Control", "no-store")
		if err != nil {
			s.refused(w, err)
			return
		}
		reply.JSON(w, http.StatusOK, answer)
	})
}

// refused answers with an error, and logs those that are this side's.
func (s *Sink) refused(w http.ResponseWriter, err error) {
	e := protocol.AsError(err)
	switch e.Kind {
	case protocol.KindInternal:
		s.o.Log.Error("an envelope can't be taken", "err", e, "cause", e.Err)
	case protocol.KindTooMany, protocol.KindUnavailable:
		w.Header().Set("Retry-After", "1")
	case protocol.KindMethod:
		w.Header().Set("Allow", http.MethodPost)
	}
	reply.Error(w, err)
}

// receive takes a request's envelope. Its checks are an order: method, address, size,
// seal, and those of [Sink.take].
func (s *Sink) receive(w http.ResponseWriter, r *http.Request) (answer op.SyncAnswer, err error) {
	if r.Method != http.MethodPost {
		return answer, protocol.Errorf(protocol.KindMethod, "envelopes are posted")
	}
	p, err := s.enter(r.URL.Path)
	if err != nil {
		return answer, err
	}
	defer s.leave(p)
	if err := s.isolated(); err != nil {
		return answer, err
	}
	// Not every kind of stream has deadlines; the relay ends slow ones as well.
	http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout))
	sealed := body{budget: &s.budget, address: p.Address}
	defer sealed.release()
	if err := sealed.read(r.Body, r.ContentLength, s.o.MaxBytes); err != nil {
		return answer, err
	}
	plain, err := p.key.Open(sealed.bytes)
	if err != nil {
		return answer, err
	}
	sealed.bytes = nil // plain is the same memory, which take has no use for once it is read
	return s.take(r.Context(), p, plain)
}

// enter returns the pairing that has a path, and counts one that is under way.
func (s *Sink) enter(path string) (*pairing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	address, ok := strings.CutPrefix(path, op.SyncPath(s.o.Sandbox, ""))
	p := s.addresses[address]
	if !ok || p == nil {
		return nil, errNoAddress
	}
	if p.posts == maxPosts {
		return nil, protocol.Errorf(protocol.KindTooMany, "%d envelopes of this pairing are under way", maxPosts)
	}
	p.posts++
	return p, nil
}

func (s *Sink) leave(p *pairing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.posts--
}
