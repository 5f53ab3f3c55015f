package reverseproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

// TestEventsAsAll: a proxy for events does what every other does.
func TestEventsAsAll(t *testing.T) {
	asEvents = true
	defer func() { asEvents = false }()
	for name, test := range map[string]func(*testing.T){
		"both ways": TestBothWaysAtOnce, "flow": TestFlowControl, "browser gone": TestBrowserGone, "upgrade": TestUpgrade,
		"no upgrade": TestNoUpgrade, "headers": TestWhatGoesAlong, "hints": TestEarlyHints, "expect": TestExpectHeadAndRange,
		"grant": TestDownloadEndsWithItsGrant, "finished late": TestFinishedAfterItsGrant, "events": TestEvents, "stalls": TestStalls,
		"early": TestEarlyAnswer, "rest": TestRestIsNoRequest, "counted": TestRequestsAreCounted,
	} {
		t.Run(name, test)
	}
}

// raw is a sandbox that answers with these bytes, and then closes the stream, or keeps
// it until the relay does.
func raw(answer string, keep bool) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, answer) // fails where it is too much
		if keep {
			io.Copy(io.Discard, buf)
		}
	}
}

// TestAnswers: what becomes of answers of every kind is the same for all proxies.
func TestAnswers(t *testing.T) {
	const ok, hint, chunked = "HTTP/1.1 200 OK\r\n", "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", "Transfer-Encoding: chunked\r\n"
	for name, c := range map[string]struct {
		answer   string
		keep     bool
		status   int
		body     string
		cut      bool // there is no proper end
		trailers string
	}{
		"a length":               {ok + "Content-Length: 3\r\n\r\nabc", false, 200, "abc", false, ""},
		"a length, kept":         {ok + "Content-Length: 3\r\n\r\nabc", true, 200, "abc", false, ""},
		"a long one, kept":       {ok + "Content-Length: 20000\r\n\r\n" + strings.Repeat("x", 20000), true, 200, strings.Repeat("x", 20000), false, ""},
		"more than its length":   {ok + "Content-Length: 3\r\n\r\nabcdef", true, 200, "abc", false, ""},
		"less than its length":   {ok + "Content-Length: 9000\r\n\r\nabc", false, 200, "abc", true, ""},
		"nothing, kept":          {ok + "Content-Length: 0\r\n\r\n", true, 200, "", false, ""},
		"no content, kept":       {"HTTP/1.1 204 No Content\r\n\r\n", true, 204, "", false, ""},
		"chunks":                 {ok + chunked + "\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", false, 200, "abcde", false, ""},
		"chunks, kept":           {ok + chunked + "\r\n3\r\nabc\r\n0\r\n\r\n", true, 200, "abc", false, ""},
		"broken off in a chunk":  {ok + chunked + "\r\n3\r\na", false, 200, "a", true, ""},
		"broken off after one":   {ok + chunked + "\r\n3\r\nabc\r\n", false, 200, "abc", true, ""},
		"bad chunks":             {ok + chunked + "\r\n3\r\nabc\r\nzz\r\n", true, 200, "abc", true, ""},
		"announced trailers":     {ok + chunked + "Trailer: Sum\r\n\r\n1\r\na\r\n0\r\nSum: 7\r\n\r\n", true, 200, "a", false, "7"},
		"unannounced trailers":   {ok + chunked + "\r\n1\r\na\r\n0\r\nSum: 7\r\n\r\n", true, 200, "a", false, "7"},
		"the end is the length":  {ok + "\r\nabc", false, 200, "abc", false, ""},
		"HTTP/1.0":               {"HTTP/1.0 200 OK\r\n\r\nabc", false, 200, "abc", false, ""},
		"it closes":              {ok + "Connection: close\r\nContent-Length: 3\r\n\r\nabc", false, 200, "abc", false, ""},
		"nine hints":             {strings.Repeat(hint, 9) + ok + "Content-Length: 1\r\n\r\na", false, 200, "a", false, ""},
		"an unasked upgrade":     {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", true, 502, "", false, ""},
		"a header without end":   {ok + "A: " + strings.Repeat("a", 300<<10), true, 502, "", false, ""},
		"many lines":             {ok + strings.Repeat("A: "+strings.Repeat("a", 1000)+"\r\n", 300) + "\r\n", true, 502, "", false, ""},
		"a long line, not too":   {ok + "A: " + strings.Repeat("a", 100<<10) + "\r\nContent-Length: 1\r\n\r\na", false, 200, "a", false, ""},
		"broken off in a header": {ok + "Content-Le", false, 502, "", false, ""},
		"nothing":                {"", false, 502, "", false, ""},
		"nonsense":               {"abc\r\n\r\n", true, 502, "", false, ""},
	} {
		for _, events := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", events ", events), func(t *testing.T) {
				w := newWorld(t, raw(c.answer, c.keep), func(o *Options) { o.Events = events })
				defer w.requests.Drain()
				resp := w.do(w.request(http.MethodGet, "/", nil))
				body, err := io.ReadAll(resp.Body)
				if resp.StatusCode != c.status || (err != nil) != c.cut || c.status < 300 && string(body) != c.body {
					t.Errorf("%d, %.40q, %v", resp.StatusCode, body, err)
				}
				if resp.Trailer.Get("Sum") != c.trailers || resp.Header.Get("Link") != "" || resp.Header.Get("Vary") != "Origin" && c.status < 300 {
					t.Errorf("%v, %v", resp.Header, resp.Trailer)
				}
				if events { // it serves nothing else
					eventually(t, "the stream stays", func() bool { return w.over.Load() == 1 })
				}
			})
		}
	}
}

// TestEndlessHints: a sandbox with hints alone doesn't hold a request for ever.
func TestEndlessHints(t *testing.T) {
	hints := strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", maxAnswerHeader/30)
	w := newWorld(t, raw(hints, true), func(o *Options) { o.Events = true })
	if resp := w.do(w.request(http.MethodGet, "/", nil)); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("%d", resp.StatusCode)
	}
}

// TestLostTunnel: a tunnel that is lost, before a request or in the middle of an
// answer, is told of in the same way by all proxies.
func TestLostTunnel(t *testing.T) {
	for _, events := range []bool{false, true} {
		w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
			io.WriteString(rw, "half")
			http.NewResponseController(rw).Flush()
			<-r.Context().Done()
		}, func(o *Options) { o.Events = events })
		resp := w.do(w.request(http.MethodGet, "/", nil))
		if _, err := io.ReadFull(resp.Body, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		w.agent.Close()
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("events %t: half an answer passes for a whole one", events)
		}
		if resp := w.do(w.request(http.MethodGet, "/", nil)); resp.StatusCode != protocol.KindUnavailable.Status() {
			t.Errorf("events %t: %d", events, resp.StatusCode)
		}
	}
}

// A failing is what goes wrong between a relay and a sandbox.
type failing struct {
	agent  func(*tunnel.Incoming) // the sandbox
	leaves time.Duration          // when who asks leaves; 0: never
	kind   protocol.Kind
}

// TestFailures: how a request fails is the same by [http.Transport].
func TestFailures(t *testing.T) {
	const timeout = 50 * time.Millisecond
	silent := func(in *tunnel.Incoming) {
		if stream, err := in.Accept(protocol.Opened{}); err == nil {
			defer stream.Close()
			io.Copy(io.Discard, stream)
		}
	}
	for name, c := range map[string]failing{
		"no answer":             {silent, 0, protocol.KindInternal},
		"it leaves":             {silent, 20 * time.Millisecond, protocol.KindInternal},
		"it leaves the opening": {func(*tunnel.Incoming) {}, 20 * time.Millisecond, protocol.KindInternal},
		"refused": {func(in *tunnel.Incoming) {
			in.Refuse(protocol.Errorf(protocol.KindForbidden, "no"))
		}, 0, protocol.KindForbidden},
		"reset": {func(in *tunnel.Incoming) {
			if stream, err := in.Accept(protocol.Opened{}); err == nil {
				stream.Read(make([]byte, 1))
				stream.Reset()
			}
		}, 0, protocol.KindInternal},
	} {
		for _, by := range []string{"direct", "http.Transport"} {
			t.Run(name+" by "+by, func(t *testing.T) {
				c.check(t, by, timeout)
			})
		}
	}
}

func (c failing) check(t *testing.T, by string, timeout time.Duration) {
	if c.leaves > 0 {
		timeout = patience
	}
	agent, relay := tunneltest.Pair(t)
	relaytest.Answer(t, agent, c.agent)
	var way http.RoundTripper = &direct{timeout: timeout}
	if by != "direct" {
		streams := &http.Transport{ResponseHeaderTimeout: timeout, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			stream, err := open(ctx)
			if err != nil {
				return nil, err
			}
			return stream, nil
		}}
		defer streams.CloseIdleConnections()
		way = streams
	}
	ctx := context.WithValue(t.Context(), callKey{}, &call{session: relay})
	if c.leaves > 0 {
		var leave context.CancelFunc
		ctx, leave = context.WithTimeout(ctx, c.leaves)
		defer leave()
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sandbox/", nil)
	must(t, err)
	resp, err := way.RoundTrip(r)
	if err == nil {
		resp.Body.Close()
		t.Fatal("an answer")
	}
	kind := protocol.KindOf(err)
	if c.leaves > 0 && (kind == protocol.KindUnavailable || errors.Is(err, context.DeadlineExceeded)) {
		kind = c.kind // its context says more
	}
	if kind != c.kind {
		t.Errorf("%v of kind %v", err, kind)
	}
}
