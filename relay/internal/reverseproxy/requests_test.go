package reverseproxy

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
)

// A download ends when its grant does, by the relay's clock, and is cut short
// so that half of it doesn't pass for all.
func TestDownloadEndsWithItsGrant(t *testing.T) {
	ended := make(chan bool, 1)
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		for {
			if _, err := rw.Write(make([]byte, 1000)); err != nil || r.Context().Err() != nil {
				ended <- true
				return
			}
			http.NewResponseController(rw).Flush()
		}
	}, nil)
	resp := w.do(w.request("GET", "/", nil))
	if _, err := io.ReadFull(resp.Body, make([]byte, 10_000)); err != nil {
		t.Fatal(err)
	}
	w.authority.Ahead.Store(int64(time.Until(w.grant.Expires())))
	if _, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Error("a proper end")
	}
	<-ended
	if n := testutil.ToFloat64(w.requests.metrics.cut.WithLabelValues(cutExpired)); n != 1 {
		t.Errorf("%v ended with their grant", n)
	}
	if resp := w.do(w.request("GET", "/", nil)); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("an expired grant: %d", resp.StatusCode)
	}
}

// A sandbox that finishes its answer properly when it sees the end of its grant
// doesn't make half of a download pass for all of it.
func TestFinishedAfterItsGrant(t *testing.T) {
	for range 30 { // a race between the end and what is being written
		finished := make(chan bool)
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			defer close(finished)
			for r.Context().Err() == nil {
				rw.Write(make([]byte, 1000))
				http.NewResponseController(rw).Flush()
			}
		}, nil)
		resp := w.do(w.request("GET", "/", nil))
		if _, err := io.ReadFull(resp.Body, make([]byte, 10_000)); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() {
			_, err := io.Copy(io.Discard, resp.Body)
			ended <- err
		}()
		w.requests.mu.Lock()
		for one := range w.requests.open {
			one.cut(lifetime.ErrRevoked, "revoked")
		}
		w.requests.mu.Unlock()
		<-finished
		if err := <-ended; err == nil {
			t.Fatal("a proper end")
		}
	}
}

// Events come when they are sent, and a drain doesn't wait for their end.
func TestEvents(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(rw, "data: 1\n\n")
		http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	}, nil)
	resp := w.do(w.request("GET", "/", nil))
	event := make([]byte, 9)
	if _, err := io.ReadFull(resp.Body, event); err != nil || string(event) != "data: 1\n\n" {
		t.Errorf("%q %v", event, err)
	}
	w.requests.Drain()
	if _, err := resp.Body.Read(event); err == nil {
		t.Error("it goes on")
	}
	if resp := w.do(w.request("GET", "/", nil)); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("while draining: %d", resp.StatusCode)
	}
}

// Who sends half a body, or takes half an answer, and then does nothing, is cut
// off; who waits for events isn't.
func TestStalls(t *testing.T) {
	before := stallTimeout
	stallTimeout = 300 * time.Millisecond
	t.Cleanup(func() { stallTimeout = before }) // after the server, whose requests read it
	ended := make(chan string, 2)
	answered := make(chan string, 1)
	events := make(chan bool)
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/up":
			io.Copy(io.Discard, r.Body)
		case "/down":
			for {
				if _, err := rw.Write(make([]byte, 64<<10)); err != nil {
					break
				}
			}
		default:
			rw.Header().Set("Content-Type", "text/event-stream")
			http.NewResponseController(rw).Flush()
			<-events
			io.WriteString(rw, "data: late\n\n")
			return
		}
		ended <- r.URL.Path
	}, nil)
	listening := w.do(w.request("GET", "/events", nil))
	began := time.Now() // before anything can stall
	body, feed := io.Pipe()
	defer feed.Close()
	go func() { // ends with the connection
		resp, err := w.client.RoundTrip(w.request("PUT", "/up", body))
		if err != nil {
			answered <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		answered <- resp.Status + " " + string(text)
	}()
	io.WriteString(feed, "half")
	w.do(w.request("GET", "/down", nil))
	for range 2 {
		select {
		case path := <-ended:
			if took := time.Since(began); took < stallTimeout/2 {
				t.Errorf("%s after %s", path, took)
			}
		case <-time.After(patience):
			t.Fatal("a stalled request goes on")
		}
	}
	if got := <-answered; !strings.HasPrefix(got, "400 ") || !strings.Contains(got, "stalled") {
		t.Errorf("who stalls is told %q", got)
	}
	close(events)
	if got, err := io.ReadAll(listening.Body); string(got) != "data: late\n\n" || err != nil {
		t.Errorf("%q %v", got, err)
	}
}

// TestFound10RequestsOfOnePerson: there is an end to what is under way for one
// person, however many grants that one has, and nobody else feels it.
func TestFound10RequestsOfOnePerson(t *testing.T) {
	a := relaytest.NewAuthority(t)
	p := New(a.Grants, prometheus.NewRegistry())
	grant, _ := a.Grant(nil)
	var open []*Request
	for range maxPerPerson {
		another, _ := a.Grant(nil)
		_, one, err := p.Begin(t.Context(), another)
		must(t, err)
		open = append(open, one)
	}
	if _, _, err := p.Begin(t.Context(), grant); protocol.KindOf(err) != protocol.KindTooMany {
		t.Errorf("%v", err)
	}
	other, _ := a.Grant(func(g *jws.Grant) { g.Subject = "usr_other" })
	_, one, err := p.Begin(t.Context(), other)
	must(t, err)
	one.End()
	open[0].End()
	open[0].End()
	_, one, err = p.Begin(t.Context(), grant)
	must(t, err)
	for _, one := range append(open, one) {
		one.End()
	}
	if p.count() != 0 || len(p.ofPerson) != 0 {
		t.Errorf("%v left", p.count())
	}
}

// A connection is used again after a proxied answer, however late.
func TestDeadlinesDontStay(t *testing.T) {
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) { io.Copy(rw, r.Body) }, nil)
	counting := w.requests.metrics.tally(API)
	counted := &counting
	var reads, writes deadlines
	rw := &deadlined{httptest.NewRecorder(), &reads, &writes}
	body := newPacedBody(io.NopCloser(strings.NewReader("abc")), http.NewResponseController(rw), counted, false)
	io.ReadAll(body)
	body.Close()
	body.Close()
	out := newPacedWriter(t.Context(), rw, httptest.NewRequest("GET", "/", nil), counted)
	io.WriteString(out, "x")
	out.FlushError()
	out.leave()
	for what, list := range map[string]deadlines{"read": reads, "write": writes} {
		if len(list) == 0 || !list[len(list)-1].IsZero() || list[0].IsZero() {
			t.Errorf("%s deadlines %v", what, list)
		}
	}
	for range 3 { // on one connection
		resp := w.do(w.request("POST", "/", strings.NewReader("abc")))
		if body, err := io.ReadAll(resp.Body); string(body) != "abc" || err != nil {
			t.Errorf("%q %v", body, err)
		}
	}
}

// TestFound13BodiesThatTrickle: a byte now and then isn't progress where a body
// has a rate to keep to; what takes its time on the sandbox's side is.
func TestFound13BodiesThatTrickle(t *testing.T) {
	w := newWorld(t, http.NotFound, nil)
	tally := w.requests.metrics.tally(API)
	for _, c := range []struct {
		piece, rate  int
		pause, think time.Duration
		pieces, want int
	}{
		{1, 4 << 10, 10 * time.Second, 0, 100, 6},                // a minute
		{64 << 10, 4 << 10, 15 * time.Second, 0, 100, 100},       // just fast enough
		{64 << 10, 4 << 10, 20 * time.Second, 0, 100, 11},        // not quite: 16 s of each piece are earned
		{1 << 10, 4 << 10, time.Second / 8, time.Hour, 100, 100}, // waits for the sandbox
		{1, 0, 10 * time.Second, 0, 100, 100},                    // no rate
	} {
		synctest.Test(t, func(t *testing.T) {
			trickle := &trickle{c.piece, c.pause, c.pieces, time.Time{}}
			body := newPacedBody(io.NopCloser(trickle), http.NewResponseController(trickle), &tally, false)
			body.rate = c.rate
			got, err := 0, error(nil)
			for {
				if _, err = body.Read(make([]byte, 64<<10)); err != nil {
					break
				}
				got++
				time.Sleep(c.think)
			}
			if got < c.want || got > c.want+1 || (got < c.pieces) != errors.Is(err, errStalled) {
				t.Errorf("%+v: %d pieces came, then %v", c, got, err)
			}
		})
	}
}

// A trickle is a body whose pieces come after a pause each, and the connection
// with its deadline.
type trickle struct {
	piece    int
	pause    time.Duration
	left     int
	deadline time.Time
}

func (b *trickle) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if rest := time.Until(b.deadline); !b.deadline.IsZero() && rest < b.pause {
		time.Sleep(max(0, rest))
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(b.pause)
	b.left--
	return min(b.piece, len(p)), nil
}

func (b *trickle) SetReadDeadline(at time.Time) error { b.deadline = at; return nil }
func (b *trickle) Header() http.Header                { return http.Header{} }
func (b *trickle) Write(p []byte) (int, error)        { return len(p), nil }
func (b *trickle) WriteHeader(int)                    {}

type deadlines []time.Time

// deadlined notes deadlines.
type deadlined struct {
	*httptest.ResponseRecorder
	reads, writes *deadlines
}

func (d *deadlined) SetReadDeadline(at time.Time) error { *d.reads = append(*d.reads, at); return nil }
func (d *deadlined) SetWriteDeadline(at time.Time) error {
	*d.writes = append(*d.writes, at)
	return nil
}
