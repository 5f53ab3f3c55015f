package feature

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A whole feature brings along all there is, and notes what is asked of it.
type whole struct {
	name  string
	kind  string // of its operation
	calls *[]string
	err   error
}

func (w whole) note(what string) { *w.calls = append(*w.calls, w.name+" "+what) }

func (w whole) Routes(mux *http.ServeMux) {
	mux.HandleFunc("/"+w.name, func(rw http.ResponseWriter, _ *http.Request) { io.WriteString(rw, w.name) })
}

func (w whole) Front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.note("front")
		next.ServeHTTP(rw, r)
	})
}

func (w whole) Operations() Operations {
	return Operations{w.kind: Do(func(context.Context, *jws.Command, *op.Plain) (protocol.OpResult, error) {
		return protocol.OpResult{}, nil
	})}
}

func (w whole) Tools(toolbox.Caller) []toolbox.Tool {
	return []toolbox.Tool{{Tool: protocol.Tool{Name: w.name}}}
}

func (w whole) TerminalStarts(start *Start) error {
	w.note("start")
	start.Env = append(start.Env, "OF="+w.name)
	return w.err
}

func (w whole) FurnishHome(home Home) error {
	w.note("furnish for " + home.Agent)
	return w.err
}

func (w whole) TerminalEnded(t Terminal)                { w.note("end " + string(t.PTY)) }
func (w whole) SessionEnded(s protocol.SessionID) error { w.note("end " + string(s)); return w.err }
func (w whole) Reconnected()                            { w.note("reconnected") }
func (w whole) Close() error                            { w.note("close"); return w.err }

// TestSet: features start in their order and end in the opposite one, whatever
// each of them brings.
func TestSet(t *testing.T) {
	var calls []string
	failed := errors.New("no")
	one := whole{"one", op.KindSessionDelete, &calls, nil}
	two := whole{"two", op.KindIntegrationsChanged, &calls, failed}
	var s Set
	s.Add(one, io.NopCloser(nil), two)
	took := func(want ...string) {
		t.Helper()
		if !slices.Equal(calls, want) {
			t.Errorf("called %q, want %q", calls, want)
		}
		calls = nil
	}
	start := &Start{}
	if err := s.TerminalStarts(start); err != failed || strings.Join(start.Env, " ") != "OF=one OF=two" {
		t.Errorf("%v %q", err, start.Env)
	}
	took("one start", "two start")
	if err := s.FurnishHome(Home{Agent: "claude"}); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	took("one furnish for claude", "two furnish for claude")
	s.TerminalEnded(Terminal{PTY: "pty_1"})
	took("two end pty_1", "one end pty_1")
	if err := s.SessionEnded("ses_1"); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	took("two end ses_1", "one end ses_1")
	s.Reconnected()
	took("one reconnected", "two reconnected")
	if err := s.Close(); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	took("two close", "one close")

	mux := http.NewServeMux()
	s.Routes(mux)
	w := httptest.NewRecorder()
	s.Front(mux).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/two", nil))
	if w.Body.String() != "two" {
		t.Errorf("%s", w.Body)
	}
	took("one front", "two front")
	if all := s.Operations(); len(all) != 2 || all[op.KindSessionDelete] == nil {
		t.Errorf("%v", all)
	}
	if all := s.Tools(toolbox.Caller{}); len(all) != 2 || all[0].Name != "one" {
		t.Errorf("%v", all)
	}
	s.Run(t.Context()) // nobody runs
}

// TestSetRefuses: a feature whose methods are spelled wrongly, and two for one
// operation.
func TestSetRefuses(t *testing.T) {
	refused := func(what string, do func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s is taken", what)
			}
		}()
		do()
	}
	refused("nothing", func() { new(Set).Add(struct{}{}) })
	refused("an operation of two features", func() {
		var s Set
		s.Add(whole{kind: op.KindSessionDelete}, whole{kind: op.KindSessionDelete})
		s.Operations()
	})
}
