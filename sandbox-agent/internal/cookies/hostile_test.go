package cookies

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"path"
	"slices"
	"sync"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
	"github.com/fairlead/fairlead/tunnel"
	"github.com/fairlead/fairlead/tunnel/tunneltest"
)

var hostileBodies = flag.Int("hostile", 1500, "bodies that TestHostileRelay sends")

// A sealedBody is an envelope that a source has made, and a relay got to see.
type sealedBody struct {
	of       *hostilePairing
	hostname string
	sequence int64
	cookie   seal.Cookie
	bytes    []byte
}

// A hostilePairing is one whose envelopes a relay keeps, and what should have come of
// them.
type hostilePairing struct {
	*source
	in      *hostileSandbox
	made    map[string]int64 // sequences, by hostname
	last    map[string]int64 // that were taken
	has     map[seal.CookieID]kept
	genuine map[string]*sealedBody // by their bytes
}

// address is the last part of its path.
func (p *hostilePairing) address() string { return path.Base(p.path) }

// A hostileSandbox is one whose relay does as it likes.
type hostileSandbox struct {
	*rig
	id       protocol.SandboxID
	relay    *http.Client // past all that a relay's door asks
	pairings []*hostilePairing
	pushes   int64

	mu  sync.Mutex
	set map[string]int // guarded by mu: how often Chromium was given each value
}

// streams is the agent's end of a tunnel, whose streams carry a request each.
type streams struct{ *tunnel.Session }

func (s streams) Accept() (net.Conn, error) {
	in, err := s.Session.Accept(context.Background())
	if err != nil {
		return nil, err
	}
	return in.Accept(protocol.Opened{})
}

func (s streams) Addr() net.Addr { return &net.UnixAddr{Name: "tunnel", Net: "memory"} }

func (s streams) Close() error {
	s.Session.Close()
	return nil
}

func newHostileSandbox(t *testing.T, id protocol.SandboxID) *hostileSandbox {
	s := &hostileSandbox{id: id, set: map[string]int{}}
	s.rig = newRig(t, func(o *Options) { o.Sandbox, o.Chromium = id, s })
	agent, relay := tunneltest.Pair(t)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Handler().ServeHTTP(w, r) // of the agent that is
	})}
	served := make(chan struct{})
	go func() { // the test's end waits for it
		defer close(served)
		server.Serve(streams{agent})
	}()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		stream, _, err := relay.Open(ctx, protocol.LaneBulk, protocol.Open{Kind: protocol.StreamSync})
		if err != nil {
			return nil, err
		}
		return stream, nil
	}}
	s.relay = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		relay.Close()
		<-served
		server.Close()
	})
	for range 2 {
		p := &hostilePairing{
			source: s.laptop(fmt.Sprint(id, len(s.pairings))), in: s, made: map[string]int64{}, last: map[string]int64{},
			has: map[seal.CookieID]kept{}, genuine: map[string]*sealedBody{},
		}
		s.pairings = append(s.pairings, p)
	}
	return s
}

// SetCookies counts what Chromium is given.
func (s *hostileSandbox) SetCookies(ctx context.Context, session protocol.SessionID, cookies []seal.Cookie) (map[int]string, error) {
	s.mu.Lock()
	for _, c := range cookies {
		s.set[c.Value]++
	}
	s.mu.Unlock()
	return s.chromium.SetCookies(ctx, session, cookies)
}

func (s *hostileSandbox) RemoveCookies(ctx context.Context, session protocol.SessionID, ids []seal.CookieID) error {
	return s.chromium.RemoveCookies(ctx, session, ids)
}

// send posts a body, of which length bytes are announced. Without an answer there is no
// status.
func (s *hostileSandbox) send(path string, body []byte, length int) (status int) {
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "http://sandbox"+path, io.NopCloser(bytes.NewReader(body)))
	must(s.t, err)
	request.ContentLength = int64(length)
	answer, err := s.relay.Do(request)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	io.Copy(io.Discard, answer.Body)
	return answer.StatusCode
}

// A hostileRelay has two sandboxes and all that was ever sent to them.
type hostileRelay struct {
	t         *testing.T
	random    *rand.Rand
	sandboxes []*hostileSandbox
	seen      []*sealedBody
	answers   map[int]int
	sent      int
}

// seal has a source make an envelope, which the relay keeps.
func (h *hostileRelay) seal() *sealedBody {
	in := h.sandboxes[h.random.IntN(2)]
	p := in.pairings[h.random.IntN(2)]
	hostname := []string{"laptop", "vm"}[h.random.IntN(2)]
	p.made[hostname] += 1 + h.random.Int64N(3)
	c := cookie(fmt.Sprintf("%d.test", h.random.IntN(3)), fmt.Sprint(h.random.IntN(5)), fmt.Sprint(len(h.seen)))
	b := &sealedBody{of: p, hostname: hostname, sequence: p.made[hostname], cookie: c}
	b.bytes = p.source.seal(seal.Envelope{Version: 1, SourceHostname: hostname, Sequence: b.sequence, Cookies: []seal.Cookie{c}})
	p.genuine[string(b.bytes)] = b
	h.seen = append(h.seen, b)
	return b
}

// want says what the answer has to be, and notes what comes of it.
func (h *hostileRelay) want(to *hostileSandbox, path string, body []byte) int {
	i := slices.IndexFunc(to.pairings, func(p *hostilePairing) bool { return p.path == path })
	if i < 0 {
		return http.StatusNotFound
	}
	p := to.pairings[i]
	b := p.genuine[string(body)]
	if b == nil {
		return http.StatusUnauthorized
	}
	if last, known := p.last[b.hostname]; known && b.sequence <= last {
		return http.StatusConflict
	}
	p.last[b.hostname] = b.sequence
	to.pushes++
	p.has[b.cookie.ID()] = kept{to.pushes, b.cookie}
	return http.StatusOK
}

// deliver sends a body somewhere, which has to be answered as the model says.
func (h *hostileRelay) deliver(how string, to *hostileSandbox, path string, body []byte) {
	h.t.Helper()
	want := h.want(to, path, body)
	got := to.send(path, body, len(body))
	h.sent++
	h.answers[got]++
	if got != want {
		h.t.Fatalf("body %d, %s: %d, want %d", h.sent, how, got, want)
	}
}

func (h *hostileRelay) right(how string, b *sealedBody, body []byte) {
	h.t.Helper()
	h.deliver(how, b.of.in, b.of.path, body)
}

// each changes each bit of nonce and tag, and cuts at every byte.
func (h *hostileRelay) each(b *sealedBody) {
	for bit := range 28 * 8 {
		at := bit / 8
		if at >= 12 {
			at += len(b.bytes) - 28
		}
		changed := bytes.Clone(b.bytes)
		changed[at] ^= 1 << (bit % 8)
		h.right("a bit of nonce or tag changed", b, changed)
	}
	for n := range b.bytes {
		h.right("cut", b, b.bytes[:n])
	}
	h.right("then whole", b, b.bytes)
}

// anything does something that a relay shouldn't.
func (h *hostileRelay) anything() {
	b := h.seen[h.random.IntN(len(h.seen))]
	if h.random.IntN(2) == 0 { // one that is not old in all likelihood
		b = h.seen[len(h.seen)-1-h.random.IntN(min(10, len(h.seen)))]
	}
	changed := bytes.Clone(b.bytes)
	switch h.random.IntN(10) {
	case 0, 1:
		h.right("kept until now, or repeated", b, b.bytes)
	case 2:
		changed[h.random.IntN(len(changed))] ^= 1 << h.random.IntN(8)
		h.right("a bit changed", b, changed)
	case 3:
		h.right("cut", b, changed[:h.random.IntN(len(changed))])
	case 4:
		h.right("with more behind", b, append(changed, changed[:1+h.random.IntN(20)]...))
	case 5:
		other := h.seen[h.random.IntN(len(h.seen))]
		half := min(len(changed), len(other.bytes)) / 2
		h.right("two halves", b, append(changed[:half], other.bytes[half:]...))
	case 6:
		to := h.sandboxes[h.random.IntN(2)]
		h.deliver("to whomever", to, to.pairings[h.random.IntN(2)].path, b.bytes)
	case 7:
		address := []string{newAddress(), b.of.address()}[h.random.IntN(2)]
		path := op.SyncPath(h.sandboxes[h.random.IntN(2)].id, address)
		h.deliver("to an address of another sandbox", h.sandboxes[h.random.IntN(2)], path, b.bytes)
	case 8:
		h.breakOff(b)
	case 9:
		h.storm(b)
	}
}

// breakOff announces a whole body and sends a part of it: nothing is opened.
func (h *hostileRelay) breakOff(b *sealedBody) {
	h.sent++
	got := b.of.in.send(b.of.path, b.bytes[:h.random.IntN(len(b.bytes))], len(b.bytes))
	h.answers[got]++
	if got != 0 && got != http.StatusBadRequest {
		h.t.Fatalf("body %d, broken off: %d", h.sent, got)
	}
}

// storm sends one body several times at once: it is taken once, if at all.
func (h *hostileRelay) storm(b *sealedBody) {
	const at = 4
	want := h.want(b.of.in, b.of.path, b.bytes)
	got := make([]int, at)
	var wait sync.WaitGroup
	for i := range got {
		wait.Go(func() { got[i] = b.of.in.send(b.of.path, b.bytes, len(b.bytes)) })
	}
	wait.Wait()
	taken := 0
	for _, status := range got {
		h.sent++
		h.answers[status]++
		if status == http.StatusOK {
			taken++
		} else if status != http.StatusConflict {
			h.t.Fatalf("at once: %v", got)
		}
	}
	if taken > 1 || (taken == 1) != (want == http.StatusOK) {
		h.t.Fatalf("at once: %v, and the first should be %d", got, want)
	}
}

// check compares the sandboxes with the model.
func (h *hostileRelay) check() {
	for _, s := range h.sandboxes {
		m := model{}
		for _, p := range s.pairings {
			m.pairings = append(m.pairings, &modelPairing{has: p.has})
		}
		s.has(m.want())
		s.mu.Lock()
		for value, n := range s.set {
			if n > 1 {
				h.t.Errorf("%s was written %d times", value, n)
			}
		}
		if len(s.set) != int(s.pushes) {
			h.t.Errorf("%d were written, want %d", len(s.set), s.pushes)
		}
		s.mu.Unlock()
		for _, p := range s.pairings {
			last, err := s.sequences(p.id)
			if must(h.t, err); !maps.Equal(last, p.last) {
				h.t.Errorf("the sequences are %v, want %v", last, p.last)
			}
		}
		s.noCanary()
	}
}

func (s *hostileSandbox) sequences(id protocol.PairingID) (map[string]int64, error) {
	p, err := s.find(sid, id)
	if err != nil {
		return nil, err
	}
	return p.tracker.read()
}

// TestHostileRelay has a relay, on streams of its own past all limits, keep, change, cut, repeat,
// reorder and reroute what sources send: what it changed is never opened, nothing is
// written twice, and at the end there is what the model says.
func TestHostileRelay(t *testing.T) {
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-seed %d -hostile %d", seed, *hostileBodies)
	h := &hostileRelay{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), answers: map[int]int{},
		sandboxes: []*hostileSandbox{newHostileSandbox(t, sandbox), newHostileSandbox(t, "sb_other")},
	}
	h.each(h.seal())
	for h.sent < *hostileBodies {
		if h.random.IntN(3) == 0 {
			h.seal() // and nobody gets it yet
		}
		h.anything()
		if h.random.IntN(200) == 0 {
			h.sandboxes[h.random.IntN(2)].reopen()
		}
	}
	h.check()
	t.Logf("%d bodies, %d of them from sources, are answered %v", h.sent, len(h.seen), h.answers)
}
