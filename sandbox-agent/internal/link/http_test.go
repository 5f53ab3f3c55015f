package link

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/deploy/program/lifetime"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/route"
	"github.com/fairlead/fairlead/tunnel"
)

// A service is routes of a test.
type service map[string]http.HandlerFunc

func (s service) Routes(mux *http.ServeMux) {
	for pattern, handler := range s {
		mux.HandleFunc(pattern, handler)
	}
}

// serving is a rig whose link serves routes, and a transport through its tunnel
// under a grant.
func serving(t *testing.T, routes service) (*rig, *http.Transport) {
	t.Helper()
	r := newRig(t, func(l *Link) { l.Services = append(l.Services, routes) })
	token, _ := r.grant(alice, view)
	return r, r.transport(token)
}

// transport returns one through the tunnel, under a grant.
func (r *rig) transport(token string) *http.Transport {
	transport := &http.Transport{
		DisableKeepAlives: true, ExpectContinueTimeout: patience,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			stream, _, err := r.relay.Open(ctx, protocol.LaneBulk, protocol.Open{Kind: protocol.StreamHTTP, Grant: token})
			if err != nil {
				return nil, err
			}
			return stream, nil
		},
	}
	r.t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func request(t *testing.T, ctx context.Context, method, path string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://sandbox"+path, body)
	must(t, err)
	return r
}

// TestGrantOf: a service knows on whose behalf it is asked.
func TestGrantOf(t *testing.T) {
	_, transport := serving(t, service{"GET /who": func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, string(route.GrantOf(r).Subject))
	}})
	resp, err := transport.RoundTrip(request(t, t.Context(), "GET", "/who", nil))
	must(t, err)
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != string(alice) {
		t.Errorf("%q %v", body, err)
	}
	if route.GrantOf(request(t, t.Context(), "GET", "/who", nil)) != nil {
		t.Error("a request from nowhere has a grant")
	}
}

// fronted is a service that answers some requests before the mux.
type fronted struct{ service }

func (fronted) Front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.RequestURI, "/raw/") {
			io.WriteString(w, r.RequestURI)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// TestFront: a service that wants to sees paths as they were sent.
func TestFront(t *testing.T) {
	r := newRig(t, func(l *Link) {
		l.Services = append(l.Services, fronted{service{"GET /clean": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "mux") }}})
	})
	token, _ := r.grant(alice, view)
	for target, want := range map[string]string{"/raw/..//a%2Fb/./?": "/raw/..//a%2Fb/./?", "/clean": "mux"} {
		stream, _, err := r.open(protocol.LaneBulk, protocol.Open{Kind: protocol.StreamHTTP, Grant: token})
		must(t, err)
		fmt.Fprintf(stream, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", target)
		resp, err := http.ReadResponse(bufio.NewReader(stream), nil)
		must(t, err)
		if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || string(body) != want {
			t.Errorf("%s: %d %q %v", target, resp.StatusCode, body, err)
		}
	}
}

// TestBothWaysAtOnce: a handler answers while it is still being sent to, with
// trailers at the end of both.
func TestBothWaysAtOnce(t *testing.T) {
	_, transport := serving(t, service{"POST /echo": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Sum")
		out := http.NewResponseController(w)
		buf := make([]byte, 1)
		n := 0
		for {
			if got, err := r.Body.Read(buf); got == 0 && err != nil {
				break
			}
			w.Write(bytes.ToUpper(buf))
			out.Flush()
			n++
		}
		w.Header().Set("Sum", fmt.Sprint(n, r.Trailer.Get("Asked")))
	}})
	body, feed := io.Pipe()
	req := request(t, t.Context(), "POST", "/echo", body)
	req.Trailer = http.Header{"Asked": {"for"}}
	go io.WriteString(feed, "a") // the answer waits for it
	resp, err := transport.RoundTrip(req)
	must(t, err)
	defer resp.Body.Close()
	answer := bufio.NewReader(resp.Body)
	for _, letter := range "bcdefgh" {
		if got, err := answer.ReadByte(); err != nil || rune(got) != letter-1-'a'+'A' {
			t.Fatalf("%q %v", got, err)
		}
		_, err := io.WriteString(feed, string(letter))
		must(t, err)
	}
	feed.Close()
	rest, err := io.ReadAll(answer)
	if err != nil || string(rest) != "H" || resp.Trailer.Get("Sum") != "8for" {
		t.Errorf("%q %v %v", rest, err, resp.Trailer)
	}
}

// TestSlowReaderHoldsBack: what the relay doesn't take the handler can't write,
// and the other way round.
func TestSlowReaderHoldsBack(t *testing.T) {
	var written atomic.Int64
	taken := make(chan struct{})
	_, transport := serving(t, service{
		"GET /flood": func(w http.ResponseWriter, r *http.Request) {
			piece := make([]byte, 16<<10)
			for {
				n, err := w.Write(piece)
				written.Add(int64(n))
				if err != nil {
					return
				}
			}
		},
		"PUT /slow": func(w http.ResponseWriter, r *http.Request) {
			<-taken
			io.Copy(io.Discard, r.Body)
		},
	})
	resp, err := transport.RoundTrip(request(t, t.Context(), "GET", "/flood", nil))
	must(t, err)
	if n := settled(&written); n == 0 || n > 1<<20 {
		t.Errorf("%d bytes were written, and nobody reads", n)
	}
	io.CopyN(io.Discard, resp.Body, 4<<20)
	resp.Body.Close()

	const size = 8 << 20
	var sent atomic.Int64
	req := request(t, t.Context(), "PUT", "/slow", io.LimitReader(counting{&sent}, size))
	done := make(chan error, 1)
	go func() { // received below
		resp, err := transport.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	if n := settled(&sent); n == 0 || n > 1<<20 {
		t.Errorf("%d bytes were sent, and nobody reads", n)
	}
	close(taken)
	if err := <-done; err != nil || sent.Load() != size {
		t.Errorf("%d bytes, %v", sent.Load(), err)
	}
}

// settled waits until n has grown and then stands still, and returns it.
func settled(n *atomic.Int64) int64 {
	last, still := int64(0), 0
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 6000 { // a minute, where nothing moves
		<-tick.C
		now := n.Load()
		if still++; now != last || now == 0 {
			last, still = now, 0
		}
		if still == 15 {
			break
		}
	}
	return last
}

// counting is an endless source that counts what is taken.
type counting struct{ n *atomic.Int64 }

func (c counting) Read(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// TestEarlyAnswer: an answer that comes while there is much to be sent yet gets
// through, whoever notices first.
func TestEarlyAnswer(t *testing.T) {
	const length = 40 << 20
	_, transport := serving(t, service{"PUT /refused": func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	}})
	answers := make(chan error, 20)
	for range cap(answers) {
		req := request(t, t.Context(), "PUT", "/refused", io.LimitReader(counting{new(atomic.Int64)}, length))
		req.ContentLength = length
		go func() { // received below
			resp, err := transport.RoundTrip(req)
			if err == nil {
				var body []byte
				body, err = io.ReadAll(resp.Body)
				resp.Body.Close()
				if err == nil && (resp.StatusCode != http.StatusRequestEntityTooLarge || string(body) != "too large\n" || resp.ContentLength < 0) {
					err = fmt.Errorf("%d %q of %d bytes", resp.StatusCode, body, resp.ContentLength)
				}
			}
			answers <- err
		}()
	}
	for range cap(answers) {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
}

// TestPeerGone: when whoever asked is gone, the handler hears of it at once,
// also one that is held back in a write.
func TestPeerGone(t *testing.T) {
	began, ended := make(chan bool, 2), make(chan error, 2)
	_, transport := serving(t, service{
		"GET /wait": func(w http.ResponseWriter, r *http.Request) {
			began <- true
			<-r.Context().Done()
			ended <- r.Context().Err()
		},
		"GET /write": func(w http.ResponseWriter, r *http.Request) {
			began <- true
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					ended <- err
					return
				}
			}
		},
	})
	for _, path := range []string{"/wait", "/write"} {
		ctx, leave := context.WithCancel(t.Context())
		asked := make(chan struct{})
		go func() { // waited for below
			defer close(asked)
			if resp, err := transport.RoundTrip(request(t, ctx, "GET", path, nil)); err == nil {
				<-ctx.Done()
				resp.Body.Close()
			}
		}()
		<-began
		leave()
		select {
		case <-ended:
		case <-time.After(30 * time.Second): // half of what ends an idle stream
			t.Errorf("%s: it never heard", path)
		}
		<-asked
	}
}

// TestHijack: a handler that takes the connection over keeps it after the
// server is done with it.
func TestHijack(t *testing.T) {
	revoked := jws.NewRevocationSet()
	r := newRig(t, func(l *Link) {
		l.Grants = ending(revoked)
		l.Services = append(l.Services, service{"GET /socket": func(w http.ResponseWriter, r *http.Request) {
			conn, buf, err := http.NewResponseController(w).Hijack()
			must(t, err)
			buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			buf.Flush()
			go func() { // ends with the connection; the rig waits for it
				defer conn.Close()
				io.Copy(conn, buf)
			}()
		}})
	})
	token, id := r.grant(alice, view)
	socket := func() (*tunnel.Stream, *bufio.Reader) {
		stream, _, err := r.open(protocol.LaneBulk, protocol.Open{Kind: protocol.StreamHTTP, Grant: token})
		must(t, err)
		_, err = io.WriteString(stream, "GET /socket HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly ")
		must(t, err)
		reader := bufio.NewReader(stream)
		resp, err := http.ReadResponse(reader, nil)
		must(t, err)
		if resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%d", resp.StatusCode)
		}
		io.WriteString(stream, "late")
		if got := make([]byte, 10); true {
			if _, err := io.ReadFull(reader, got); err != nil || string(got) != "early late" {
				t.Errorf("%q %v", got, err)
			}
		}
		return stream, reader
	}
	one, reader := socket()
	one.CloseWrite()
	if _, err := reader.ReadByte(); err != io.EOF {
		t.Errorf("after our end: %v", err)
	}
	_, reader = socket()
	revoked.Add(id)
	if _, err := reader.ReadByte(); err != io.EOF {
		t.Errorf("after the grant was revoked: %v", err)
	}
}

// TestIdleStreamEndsWithItsGrant: a stream that waits for the next request takes
// none any more when its grant is void.
func TestIdleStreamEndsWithItsGrant(t *testing.T) {
	revoked := jws.NewRevocationSet()
	r := newRig(t, func(l *Link) {
		l.Grants = ending(revoked)
		l.Services = append(l.Services, service{"GET /": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "here") }})
	})
	token, id := r.grant(alice, view)
	stream, _, err := r.open(protocol.LaneBulk, protocol.Open{Kind: protocol.StreamHTTP, Grant: token})
	must(t, err)
	io.WriteString(stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	reader := bufio.NewReader(stream)
	resp, err := http.ReadResponse(reader, nil)
	must(t, err)
	if body, err := io.ReadAll(resp.Body); string(body) != "here" || err != nil {
		t.Errorf("%q %v", body, err)
	}
	revoked.Add(id)
	if _, err := reader.ReadByte(); err != io.EOF {
		t.Errorf("after the grant was revoked: %v", err)
	}
}

// TestGrantEnds: what is done under a grant ends with it, whatever the clock of
// the wall does meanwhile.
func TestGrantEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		revoked := jws.NewRevocationSet()
		l := &Link{}
		l.Grants = ending(revoked)
		grant := func(id protocol.GrantID) *jws.Grant {
			return &jws.Grant{ID: id, ExpiresAt: time.Now().Add(time.Minute).Unix()}
		}
		one, stopOne := l.Grants.Context(t.Context(), grant("gr_1"))
		defer stopOne()
		two, stopTwo := l.Grants.Context(t.Context(), grant("gr_2"))
		defer stopTwo()
		three, stopThree := l.Grants.Context(t.Context(), grant("gr_3"))
		revoked.Add("gr_2")
		if one.Err() != nil || !errors.Is(context.Cause(two), lifetime.ErrRevoked) {
			t.Errorf("%v, %v", one.Err(), context.Cause(two))
		}
		late, stopLate := l.Grants.Context(t.Context(), grant("gr_2"))
		defer stopLate()
		if !errors.Is(context.Cause(late), lifetime.ErrRevoked) {
			t.Errorf("a void grant: %v", context.Cause(late))
		}
		stopThree()
		time.Sleep(time.Minute + jws.Skew - time.Second)
		synctest.Wait()
		if one.Err() != nil {
			t.Error("the skew isn't allowed for")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !errors.Is(context.Cause(one), lifetime.ErrExpired) || !errors.Is(context.Cause(three), context.Canceled) {
			t.Errorf("%v, %v", context.Cause(one), context.Cause(three))
		}
	})
}

// TestExpiredDownload: a stream doesn't outlive its grant.
func TestExpiredDownload(t *testing.T) {
	r, _ := serving(t, service{"GET /drip": func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}})
	var resp *http.Response
	ends := r.expiring(view, func(token string) (err error) {
		resp, err = r.transport(token).RoundTrip(request(t, t.Context(), "GET", "/drip", nil))
		return err
	})
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err == nil || time.Since(ends) > 30*time.Second {
		t.Errorf("%v, %s after its end", err, time.Since(ends))
	}
}

// TestExpectContinue: what is refused isn't sent first.
func TestExpectContinue(t *testing.T) {
	_, transport := serving(t, service{
		"PUT /refused": func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) },
		"PUT /taken":   func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) },
	})
	for path, status := range map[string]int{"/refused": 413, "/taken": 200} {
		var sent atomic.Int64
		req := request(t, t.Context(), "PUT", path, io.LimitReader(counting{&sent}, 1000))
		req.ContentLength = 1000
		req.Header.Set("Expect", "100-continue")
		resp, err := transport.RoundTrip(req)
		must(t, err)
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != status || (status == 200) != (sent.Load() >= 1000) || status == 200 && len(body) != 1000 {
			t.Errorf("%s: %d, %d bytes sent, %d back", path, resp.StatusCode, sent.Load(), len(body))
		}
	}
}

// TestHeaderBound: a header has an end.
func TestHeaderBound(t *testing.T) {
	_, transport := serving(t, service{"GET /": func(http.ResponseWriter, *http.Request) {}})
	req := request(t, t.Context(), "GET", "/", nil)
	req.Header.Set("X-Long", strings.Repeat("x", maxHeaderBytes+8<<10))
	resp, err := transport.RoundTrip(req)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%d", resp.StatusCode)
		}
	}
}
