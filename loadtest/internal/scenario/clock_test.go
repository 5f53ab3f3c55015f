package scenario

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/measure"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
	"github.com/fairlead/fairlead/loadtest/internal/printer"
	"github.com/fairlead/fairlead/loadtest/internal/skew"
	"github.com/fairlead/fairlead/loadtest/internal/source"
	"github.com/fairlead/fairlead/loadtest/internal/stage"
)

// Whatever is timed from when a source's chunk was due crosses clocks, and
// nothing else does.
func TestWhatCrossesClocks(t *testing.T) {
	crossing := map[string]string{
		"fanout": "delivery", "terminals": "delivery", "highest-rate": "delivery", "failover": "delivery", "soak": "delivery",
		"join-storm": "delivery late_delivery", "slow-viewers": "delivery alone_delivery slow_behind",
		"outage": "delivery lossy_delivery", "chat": "chat_line crowd",
	}
	for _, s := range All() {
		var names []string
		for _, m := range s.Metrics {
			if m.CrossesClocks {
				names = append(names, m.Name)
			}
			if strings.Contains(m.Help, "chunk was due") && !m.CrossesClocks {
				t.Errorf("%s: %s is timed by the source's clock", s.Name, m.Name)
			}
		}
		if got := strings.Join(names, " "); got != crossing[s.Name] {
			t.Errorf("%s: %q cross clocks, want %q", s.Name, got, crossing[s.Name])
		}
	}
}

// A delayedTerminal is a server of WebSockets wired straight to sources, reached
// through a proxy that delays what comes from there.
type delayedTerminal struct {
	delay time.Duration
	conns chan net.Conn
	once  sync.Once
	over  chan struct{}
}

// dial implements [client.DialFunc].
func (d *delayedTerminal) dial(context.Context, string, string) (net.Conn, error) {
	near, proxyNear := net.Pipe()
	proxyFar, far := net.Pipe()
	d.conns <- far
	go func() { // ends with near
		_, _ = io.Copy(proxyFar, proxyNear)
		proxyFar.Close()
	}()
	type piece struct {
		p  []byte
		at time.Time
	}
	pieces := make(chan piece, 10_000)
	go func() { // ends with far
		defer close(pieces)
		for {
			buf := make([]byte, 32<<10)
			n, err := proxyFar.Read(buf)
			if err != nil {
				return
			}
			pieces <- piece{buf[:n], time.Now().Add(d.delay)}
		}
	}()
	go func() { // ends with the one above
		for p := range pieces {
			time.Sleep(time.Until(p.at))
			_, _ = proxyNear.Write(p.p)
		}
		proxyNear.Close()
	}()
	return near, nil
}

// Accept implements [net.Listener].
func (d *delayedTerminal) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.over:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (d *delayedTerminal) Close() error {
	d.once.Do(func() { close(d.over) })
	return nil
}

// Addr implements [net.Listener].
func (d *delayedTerminal) Addr() net.Addr { return &net.TCPAddr{} }

// ServeHTTP runs a source behind a WebSocket.
func (d *delayedTerminal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	m := source.New(websocketWriter{conn}, nil)
	defer m.Close()
	m.Ready()
	for {
		_, p, err := conn.Read(context.Background())
		if err != nil {
			return
		}
		m.Input(p)
	}
}

type websocketWriter struct{ conn *websocket.Conn }

func (w websocketWriter) Write(p []byte) (int, error) {
	return len(p), w.conn.Write(context.Background(), websocket.MessageBinary, p)
}

// timing is a handler that checks a stream.
type timing struct {
	ignoring
	checker *pattern.Checker
}

// Output implements [client.Handler].
func (h *timing) Output(p []byte, at time.Time) { h.checker.Write(p, at) }

// A proxy that delays each frame by 200 ms looks like half of that, as half is
// taken for the clocks' difference. A bound in between is neither held nor
// broken.
func TestDelayingProxyIsNotHalved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 200 * time.Millisecond
		far := &delayedTerminal{delay: delay, conns: make(chan net.Conn, 1), over: make(chan struct{})}
		server := &http.Server{Handler: far}
		served := make(chan error)
		go func() { served <- server.Serve(far) }()
		user := client.NewUser(client.UserOptions{})
		terminal := &printer.Terminal{}
		terminal.Viewer = client.Watch(t.Context(), user, client.Options{URL: "ws://terminal/", Dial: far.dial, Once: true}, terminal)
		defer func() {
			terminal.Viewer.Close()
			server.Close()
			<-served
		}()

		slo := func(expr string) measure.SLO {
			s, err := measure.ParseSLO(expr)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		slos := []measure.SLO{slo("delivery_p99<=150ms"), slo("delivery_p99<=250ms"), slo("delivery_p99>=150ms"), slo("delivery_p50>5s")}
		env := testEnv(stage.Options{SLOs: slos}, fanout.Metrics...)
		clock, err := skew.Read(t.Context(), terminal, env.Out)
		if err != nil {
			t.Fatal(err)
		}
		s := &stage.Stage{Env: env, Terminal: []*printer.Terminal{terminal}, Clock: clock}
		rec := measure.NewRecorder()
		rec.Begin(time.Now())
		spec := s.Stream(50, 64, time.Second)
		h := &timing{checker: pattern.NewChecker(spec, func(k int, at time.Time) { rec.Latency("delivery").Record(spec.Due(k), at) })}
		h.checker.Expect(0)
		terminal.Follow(h)
		if err := s.Print(t.Context(), 0, spec); err != nil {
			t.Fatal(err)
		}
		if err := terminal.Viewer.Await(t.Context(), "the stream", h.checker.Done); err != nil {
			t.Fatal(err)
		}
		terminal.Follow(nil)
		if err := clock.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		env.Out.Merge("fairlead", 0, rec.Snapshot())
		r := env.Out.Result(measure.Info{Start: time.Now()})
		if p99 := r.Figure("delivery_p99"); p99.Value == nil || *p99.Value > 0.15 || *p99.Value+r.ClockError < delay.Seconds() {
			t.Errorf("delivery_p99 is %+v, and the clocks agree within %v s", p99, r.ClockError)
		}
		var got []string
		for _, v := range measure.Judge(r, slos) {
			switch {
			case !v.Asked: // of bytes nobody counts any here
			case v.OK:
				got = append(got, "holds")
			case v.ByClock:
				got = append(got, "by clock")
			default:
				got = append(got, "broken")
			}
		}
		if want := []string{"by clock", "holds", "by clock", "broken"}; !slices.Equal(got, want) {
			t.Errorf("the verdicts are %q, want %q", got, want)
		}
		if env.Undecided() {
			t.Error("more blocks are asked for, which would not tell")
		}
	})
}

// The highest rate counts only what is in time however far the clocks are apart.
func TestHighestRateKnowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := testEnv(stage.Options{}, highestRate.Metrics...)
		clock, err := skew.Read(t.Context(), slowClock{}, env.Out)
		if err != nil {
			t.Fatal(err)
		}
		c := &climbing{Stage: &stage.Stage{Env: env, Clock: clock}, own: &highestOptions{Within: 100 * time.Millisecond}}
		if err := c.tellClock(); err != nil {
			t.Fatal(err)
		}
		if notes := env.Out.Result(measure.Info{}).Notes; len(notes) == 0 || !strings.Contains(notes[0], "come within 69.99ms") {
			t.Errorf("notes %q", notes)
		}
		c.own.Within = 30 * time.Millisecond
		if err := c.tellClock(); err == nil || !strings.Contains(err.Error(), "--within") {
			t.Errorf("what can't be told: %v", err)
		}
		c.Clock = nil // it is ours
		if err := c.tellClock(); err != nil {
			t.Error(err)
		}
	})
}

// A slowClock is a source 60 ms away that only knows the time.
type slowClock struct{}

// Ask implements [skew.Source].
func (slowClock) Ask(context.Context, string, string) (string, error) {
	time.Sleep(60 * time.Millisecond)
	return strconv.FormatInt(time.Now().UnixMicro(), 10), nil
}
