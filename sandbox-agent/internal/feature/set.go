package feature

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

// A Set is the features of a sandbox. It is put together by one goroutine, before
// anything that it does is asked for; then it is safe for concurrent use.
//
// What was added later may need what was added before: features start in that
// order, and end in the opposite one.
type Set struct{ features []any }

// Add adds features. It panics when one of them brings nothing along.
func (s *Set) Add(features ...any) {
	for _, f := range features {
		brings := false
		for _, part := range parts {
			brings = brings || part(f)
		}
		if !brings {
			panic(fmt.Sprintf("feature: %T brings nothing along", f))
		}
		s.features = append(s.features, f)
	}
}

// Of returns the features that bring a T along, in their order.
func Of[T any](s *Set) []T {
	var all []T
	for _, f := range s.features {
		if t, ok := f.(T); ok {
			all = append(all, t)
		}
	}
	return all
}

// backwards returns the features that bring a T along, the last one first.
func backwards[T any](s *Set) iter.Seq[T] {
	return func(yield func(T) bool) {
		for i := len(s.features) - 1; i >= 0; i-- {
			if t, ok := s.features[i].(T); ok && !yield(t) {
				return
			}
		}
	}
}

// Routes implements [Router].
func (s *Set) Routes(mux *http.ServeMux) {
	for _, f := range Of[Router](s) {
		f.Routes(mux)
	}
}

// Front implements [Front].
func (s *Set) Front(next http.Handler) http.Handler {
	for f := range backwards[Front](s) {
		next = f.Front(next)
	}
	return next
}

// Operations returns the handlers of all. It panics when two features want the
// same operation.
func (s *Set) Operations() Operations {
	all := Operations{}
	for _, f := range Of[Operator](s) {
		all.Add(f.Operations())
	}
	return all
}

// Remember implements [Rememberer]: the first one that knows says it.
func (s *Set) Remember(command *jws.Command, body op.Body) (result protocol.OpResult, err error, known bool) {
	for _, f := range Of[Rememberer](s) {
		if result, err, known = f.Remember(command, body); known {
			return result, err, true
		}
	}
	return protocol.OpResult{}, nil, false
}

// Tools implements [toolbox.Set].
func (s *Set) Tools(caller toolbox.Caller) (all []toolbox.Tool) {
	for _, f := range Of[toolbox.Set](s) {
		all = append(all, f.Tools(caller)...)
	}
	return all
}

// TerminalStarts implements [Starter].
func (s *Set) TerminalStarts(start *Start) error {
	for _, f := range Of[Starter](s) {
		if err := f.TerminalStarts(start); err != nil {
			return err
		}
	}
	return nil
}

// FurnishHome implements [Furnisher].
func (s *Set) FurnishHome(home Home) error {
	var errs []error
	for _, f := range Of[Furnisher](s) {
		errs = append(errs, f.FurnishHome(home))
	}
	return errors.Join(errs...)
}

// TerminalEnded implements [Ender].
func (s *Set) TerminalEnded(terminal Terminal) {
	for f := range backwards[Ender](s) {
		f.TerminalEnded(terminal)
	}
}

// SessionEnded implements [SessionEnder].
func (s *Set) SessionEnded(session protocol.SessionID) error {
	var errs []error
	for f := range backwards[SessionEnder](s) {
		errs = append(errs, f.SessionEnded(session))
	}
	return errors.Join(errs...)
}

// Reconnected implements [Reconnecter].
func (s *Set) Reconnected() {
	for _, f := range Of[Reconnecter](s) {
		f.Reconnected()
	}
}

// Run implements [Runner].
func (s *Set) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, f := range Of[Runner](s) {
		running.Go(func() { f.Run(ctx) })
	}
	running.Wait()
}

// Collectors returns those of the features that count something.
func (s *Set) Collectors() []prometheus.Collector { return Of[prometheus.Collector](s) }

// Close implements [io.Closer].
func (s *Set) Close() error {
	var errs []error
	for f := range backwards[io.Closer](s) {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
