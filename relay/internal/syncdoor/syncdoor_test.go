package syncdoor

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/relaytest"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(relaytest.Patient(m)) }

const address = "abcdefghijklmnopqrstuvwxyz"

var path = "/sync/" + string(relaytest.Sandbox) + "/" + address

// A world is laptops, a door and a sandbox.
type world struct {
	t       *testing.T
	tunnels *relaytest.Tunnels
	log     bytes.Buffer
	streams atomic.Int32
	server  *httptest.Server
	client  *http.Client
}

// newWorld is a world whose sandbox serves handler.
func newWorld(t *testing.T, most int64, handler http.HandlerFunc) *world {
	t.Helper()
	w := &world{t: t, tunnels: &relaytest.Tunnels{}, client: &http.Client{Transport: &http.Transport{}}}
	agent, relay := tunneltest.Pair(t)
	relaytest.Answer(t, agent, func(in *tunnel.Incoming) {
		w.streams.Add(1)
		if in.Open.Kind != protocol.StreamSync || in.Open.Grant != "" || in.Lane != protocol.LaneBulk {
			t.Errorf("opened %+v", in.Open)
		}
		relaytest.HTTP(in, handler)
	})
	w.tunnels.Connect(relay)
	registry := prometheus.NewRegistry()
	log := slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	door := New(Options{
		Tunnels: w.tunnels, MaxBytes: most, Metrics: NewMetrics(registry), Log: log,
	})
	mux := http.NewServeMux()
	methods := access.NewMethods(mux)
	door.Register(methods)
	methods.RefuseOthers()
	bodies := intake.NewBodies(func(*http.Request) netip.Addr { return netip.MustParseAddr("192.0.2.1") }, nil)
	w.server = httptest.NewServer(bodies.Handler(mux))
	t.Cleanup(w.server.Close)
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

// post is what a laptop does.
func (w *world) post(to string, body io.Reader, header ...string) (*http.Response, string) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.server.URL+to, body)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := w.client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(text)
}

// told answers with the size of the body.
func told(w http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	fmt.Fprintf(w, `{"bytes":%d,"whole":%t}`, n, err == nil)
}

// TestPush: a body gets to the sandbox as it is, without anything that a client has
// said besides; of the answer come status and body.
func TestPush(t *testing.T) {
	body := make([]byte, 300_000)
	_, _ = rand.Read(body)
	w := newWorld(t, 0, func(w http.ResponseWriter, r *http.Request) {
		got, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if r.Method != http.MethodPost || r.URL.Path != path || r.Header.Get("Authorization")+r.Header.Get("Cookie")+r.Header.Get("User-Agent")+r.Header.Get("X-Forwarded-For") != "" {
			t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		}
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Location", "https://a.example/")
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusConflict)
		io.WriteString(w, `{"error":{}}`)
	})
	for _, reader := range []io.Reader{bytes.NewReader(body), struct{ io.Reader }{bytes.NewReader(body)}} { // the second one is chunked
		resp, text := w.post(path, reader, "Authorization", "Basic eDp5", "Cookie", "a=b", "X-Forwarded-For", "1.2.3.4")
		if resp.StatusCode != http.StatusConflict || text != `{"error":{}}` || resp.Header.Get("Retry-After") != "7" {
			t.Errorf("%d %q %v", resp.StatusCode, text, resp.Header)
		}
		for _, name := range []string{"Set-Cookie", "Location", "Access-Control-Allow-Origin"} {
			if resp.Header.Get(name) != "" {
				t.Errorf("%s passes", name)
			}
		}
		if resp.Header.Get("Content-Type") != "application/json" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%v", resp.Header)
		}
	}
	if strings.Contains(w.log.String(), address) {
		t.Errorf("the address is logged:\n%s", &w.log)
	}
}

// TestRefusals: what the relay itself says.
func TestRefusals(t *testing.T) {
	const most = 100_000
	w := newWorld(t, most, told)
	refused := func(resp *http.Response, text string, status int, name string) {
		t.Helper()
		if resp.StatusCode != status || !strings.Contains(text, name) || strings.Contains(text, address) {
			t.Errorf("%d %s, want %d", resp.StatusCode, text, status)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodOptions} {
		r, err := http.NewRequestWithContext(t.Context(), method, w.server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := w.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "POST" {
			t.Errorf("%s: %d", method, resp.StatusCode)
		}
	}
	resp, text := w.post("/sync/sb_test/not-an-address", nil)
	refused(resp, text, http.StatusNotFound, "TargetError")
	resp, text = w.post(path, bytes.NewReader(make([]byte, most+1)))
	refused(resp, text, http.StatusRequestEntityTooLarge, "LimitError")
	if n := w.streams.Load(); n != 0 {
		t.Errorf("the sandbox was asked %d times", n)
	}
	resp, text = w.post(path, struct{ io.Reader }{bytes.NewReader(make([]byte, most+1))})
	refused(resp, text, http.StatusRequestEntityTooLarge, "LimitError")
	if resp, text = w.post(path, bytes.NewReader(make([]byte, most))); resp.StatusCode != http.StatusOK || text != `{"bytes":100000,"whole":true}` {
		t.Errorf("%d %s", resp.StatusCode, text)
	}
	w.tunnels.Connect(nil)
	for _, to := range []string{path, "/sync/sb_never/" + address} {
		resp, text = w.post(to, nil)
		refused(resp, text, http.StatusServiceUnavailable, "InternalError")
		if resp.Header.Get("Retry-After") == "" {
			t.Error("it doesn't say when to come again")
		}
	}
}

// TestEarlyAnswer: the sandbox needn't read a body whose address it doesn't know.
func TestEarlyAnswer(t *testing.T) {
	w := newWorld(t, 0, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"error":{"name":"TargetError"}}`)
	})
	conn, err := net.Dial("tcp", w.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nsome", path) // and no more
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("%d", resp.StatusCode)
	}
}

// TestHostileSandbox: an answer that is too long, or none of those that there are,
// doesn't pass.
func TestHostileSandbox(t *testing.T) {
	for name, handler := range map[string]http.HandlerFunc{
		"too long": func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, maxAnswer+1)) },
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://a.example/", http.StatusTemporaryRedirect)
		},
		"header": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("A", strings.Repeat("x", maxAnswerHeader))
		},
		"cut off": func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
	} {
		w := newWorld(t, 0, handler)
		if resp, text := w.post(path, nil); resp.StatusCode != http.StatusBadGateway || strings.Contains(text, address) {
			t.Errorf("%s: %d %.80s", name, resp.StatusCode, text)
		}
	}
}

// TestAnswers: what a sandbox says passes with its status, whatever kind of error it is.
func TestAnswers(t *testing.T) {
	var kind atomic.Uint32
	w := newWorld(t, 0, func(w http.ResponseWriter, r *http.Request) {
		access.WriteError(w, protocol.Errorf(protocol.Kind(kind.Load()), "why"))
	})
	for _, says := range []protocol.Kind{
		protocol.KindInvalid, protocol.KindUnauthenticated, protocol.KindNotFound, protocol.KindMethod, protocol.KindConflict,
		protocol.KindTooLarge, protocol.KindTooMany, protocol.KindUnsupported, protocol.KindUnavailable, protocol.KindNoSpace,
	} {
		kind.Store(uint32(says))
		// Each has an address of its own, and so an allowance.
		if resp, text := w.post(to(int(says)), nil); resp.StatusCode != says.Status() || !strings.Contains(text, "why") {
			t.Errorf("%v: %d %s, want %d", says, resp.StatusCode, text, says.Status())
		}
	}
}

// to is an address for a test's client number n.
func to(n int) string {
	return "/sync/" + string(relaytest.Sandbox) + "/" + strings.Repeat(string(rune('a'+n)), len(address))
}

// TestLanes: of many bodies for one sandbox two are with it at a time, and each gets
// there. A client that stops in the middle keeps nobody waiting.
func TestLanes(t *testing.T) {
	var now, most atomic.Int32
	w := newWorld(t, 0, func(rw http.ResponseWriter, r *http.Request) {
		told(rw, r)
		for n := now.Add(1); n > most.Load(); {
			most.Store(n)
		}
		for range 100 {
			runtime.Gosched() // others come
		}
		now.Add(-1)
	})
	stalled, feed := io.Pipe()
	var all sync.WaitGroup
	push := func(n int, body io.Reader) {
		all.Go(func() {
			if resp, text := w.post(to(n), body); resp.StatusCode != http.StatusOK || !strings.Contains(text, `"whole":true`) {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
		})
	}
	for n := range abreast {
		push(n, io.MultiReader(strings.NewReader("some"), stalled))
	}
	feed.Write([]byte("more")) // one of them is under way
	var others sync.WaitGroup
	for n := abreast; n < 20; n++ {
		others.Go(func() {
			if resp, text := w.post(to(n), bytes.NewReader(make([]byte, 100_000))); resp.StatusCode != http.StatusOK || !strings.Contains(text, "100000") {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
		})
	}
	others.Wait()
	feed.Close()
	all.Wait()
	if n := most.Load(); n > abreast {
		t.Errorf("%d bodies at a time", n)
	}
}

// TestMemory: a large body passes in pieces.
func TestMemory(t *testing.T) {
	const size = 32 << 20
	w := newWorld(t, 0, told)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	resp, text := w.post(path, io.LimitReader(rand.Reader, size))
	runtime.ReadMemStats(&after)
	if resp.StatusCode != http.StatusOK || text != fmt.Sprintf(`{"bytes":%d,"whole":true}`, size) {
		t.Fatalf("%d %s", resp.StatusCode, text)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > size/2 {
		t.Errorf("%d bytes allocated for a body of %d", took, size)
	}
}

// TestLimits: how many pushes of a client at an address may be under way, and how
// many may begin in a minute; addresses that are made up don't take others' room.
func TestLimits(t *testing.T) {
	here, there := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	now := time.Unix(1, 0)
	refused := func(err error) bool { return protocol.KindOf(err) == protocol.KindTooMany && err != nil }
	l := newLimits()
	first, err := l.enter(here, "a", now)
	second, err2 := l.enter(here, "a", now)
	_, err3 := l.enter(here, "a", now)
	if err != nil || err2 != nil || !refused(err3) {
		t.Fatalf("%v, %v, %v", err, err2, err3)
	}
	for _, other := range []struct {
		ip      netip.Addr
		address string
	}{{there, "a"}, {here, "b"}} {
		leave, err := l.enter(other.ip, other.address, now)
		if err != nil {
			t.Error(err)
			continue
		}
		leave()
	}
	first()
	first() // once
	second()
	for i := range burst - 2 {
		leave, err := l.enter(here, "a", now)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		leave()
	}
	if _, err := l.enter(here, "a", now); !refused(err) {
		t.Errorf("beyond the burst: %v", err)
	}
	if leave, err := l.enter(here, "a", now.Add(time.Second)); err != nil {
		t.Errorf("a second later: %v", err)
	} else {
		leave()
	}
	for i := range 3 * maxClients {
		if leave, err := l.enter(here, fmt.Sprint(i), now); err == nil {
			leave()
		}
	}
	if len(l.clients) > maxClients || l.recent.Len() != len(l.clients) {
		t.Errorf("%d clients are remembered", len(l.clients))
	}
	var leaves []func()
	for i := range maxInAll {
		leave, err := l.enter(here, fmt.Sprint("all ", i), now)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	if _, err := l.enter(there, "more", now); !refused(err) {
		t.Errorf("beyond all: %v", err)
	}
	for _, leave := range leaves {
		leave()
	}
	if l.inAll != 0 {
		t.Errorf("%d are under way", l.inAll)
	}
}

// A trickle gives bytes at a rate.
type trickle struct {
	rate int
	left int
	end  time.Time // of reading, as SetReadDeadline says
}

func (r *trickle) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	if !r.end.IsZero() && time.Until(r.end) < time.Second {
		time.Sleep(time.Until(r.end))
		return 0, errDeadline
	}
	time.Sleep(time.Second)
	n := min(len(p), r.rate, r.left)
	r.left -= n
	return n, nil
}

var errDeadline = &net.OpError{Op: "read", Err: timeout{}}

type timeout struct{}

func (timeout) Error() string        { return "i/o timeout" }
func (timeout) Timeout() bool        { return true }
func (timeout) Is(target error) bool { return target.Error() == "i/o timeout" }

// SetReadDeadline is for [http.ResponseController].
func (r *trickle) SetReadDeadline(at time.Time) error {
	r.end = at
	return nil
}

type controlled struct {
	http.ResponseWriter
	*trickle
}

// TestSlowBody: a body that comes too slowly is ended after ten seconds, one that
// comes just quickly enough isn't, and time that nobody reads doesn't count.
func TestSlowBody(t *testing.T) {
	for name, c := range map[string]struct {
		rate int
		idle time.Duration // before each read
		slow bool
	}{
		"silent":             {0, 0, true},
		"a little too slow":  {leastRate * 9 / 10, 0, true},
		"quick enough":       {leastRate * 12 / 10, 0, false},
		"the sandbox's turn": {leastRate * 12 / 10, time.Minute, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			in := &trickle{rate: c.rate, left: 40 * leastRate}
			r := httptest.NewRequest(http.MethodPost, path, io.NopCloser(in))
			at, leave := newLanes().enter(t.Context(), relaytest.Sandbox)
			defer leave()
			b := newBody(controlled{httptest.NewRecorder(), in}, r, DefaultMaxBytes, at)
			began := time.Now()
			piece, err := make([]byte, 1<<20), error(nil)
			for err == nil {
				time.Sleep(c.idle)
				_, err = b.Read(piece)
			}
			if c.slow != (err == errSlow) || !c.slow && err != io.EOF || b.whole() == c.slow {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began); c.slow && took > rateSpan+time.Second {
				t.Errorf("%s: ended after %v", name, took)
			}
		})
	}
}
