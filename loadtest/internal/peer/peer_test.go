package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/loadtest/internal/eventloop"
	"github.com/fairlead/fairlead/loadtest/internal/pattern"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newLoop(t *testing.T) *eventloop.Loop {
	t.Helper()
	l, err := eventloop.New(nil)
	must(t, err)
	t.Cleanup(l.Close)
	return l
}

func TestLoad(t *testing.T) {
	for text, want := range map[string]string{
		`{"name":"ttyd","url":"http://127.0.0.1:1","key":"k"}`:       "",
		`{"name":"centrifugo","url":"http://127.0.0.1:1","key":"k"}`: "what can be beside this scenario is ttyd",
		`{"name":"ttyd","url":"http://127.0.0.1:1"}`:                 "lacks",
		`{"name":"ttyd","url":"127.0.0.1:1","key":"k"}`:              "lacks",
		`{}`:     "lacks",
		`["ttyd`: "doesn't describe",
	} {
		file := filepath.Join(t.TempDir(), "peer.json")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		p, err := Load(file, TTYD)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && p.Key != "k" {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// Frames are found however they are cut, and none that no server sends.
func TestFrames(t *testing.T) {
	var sent []byte
	sizes := []int{0, 1, 125, 126, 65535, 65536, 70_000}
	for i, n := range sizes {
		sent = append(appendHead(sent, opBinary, n), bytes.Repeat([]byte{byte('a' + i)}, n)...)
	}
	for _, piece := range []int{3, 4096, len(sent)} {
		var f frames
		var got []int
		for from := 0; from < len(sent); from += piece {
			must(t, f.feed(sent[from:min(from+piece, len(sent))], func(opcode byte, p []byte) error {
				if i := len(got); opcode != opBinary || !bytes.Equal(p, bytes.Repeat([]byte{byte('a' + i)}, len(p))) {
					t.Fatalf("frame %d is another", i)
				}
				got = append(got, len(p))
				return nil
			}))
		}
		if fmt.Sprint(got) != fmt.Sprint(sizes) || len(f.kept) > 0 {
			t.Errorf("in pieces of %d: %v", piece, got)
		}
	}
	for _, bad := range [][]byte{{0x02, 1, 'x'}, {0xc2, 1, 'x'}, {0x82, 0x81, 0, 0, 0, 0, 'x'}, appendHead(nil, opBinary, maxMessage+1)} {
		if err := new(frames).feed(bad, func(byte, []byte) error { return nil }); err == nil {
			t.Errorf("% x is taken", bad)
		}
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(append(appendHead(nil, opText, 3), "abc"...), 2)
	f.Fuzz(func(t *testing.T, p []byte, piece int) {
		var whole, cut []byte
		note := func(to *[]byte) func(byte, []byte) error {
			return func(opcode byte, p []byte) error {
				*to = append(append(*to, opcode), p...)
				return nil
			}
		}
		var a, b frames
		errA := a.feed(p, note(&whole))
		var errB error
		for piece = max(1, piece); len(p) > 0 && errB == nil; {
			n := min(piece, len(p))
			errB = b.feed(p[:n], note(&cut))
			p = p[n:]
		}
		if (errA == nil) != (errB == nil) || !bytes.Equal(whole, cut) {
			t.Fatalf("%v %q, in pieces %v %q", errA, whole, errB, cut)
		}
	})
}

// wire is a Link that keeps what is written.
type wire struct{ wrote []byte }

func (w *wire) Begin([]byte) error { return nil }
func (w *wire) Close()             {}
func (w *wire) Write(p []byte) error {
	w.wrote = append(w.wrote, p...)
	return nil
}

// taker is a Receiver that keeps what comes.
type taker struct{ got []byte }

func (r *taker) Received(p []byte, _ time.Time) error { r.got = append(r.got, p...); return nil }
func (r *taker) Swept(time.Time)                      {}
func (r *taker) Ended(error)                          {}

// A viewer gets the data of each publication, whatever Centrifugo writes around
// it, and nothing else.
func TestSubscriberTranslates(t *testing.T) {
	chunk := string(pattern.Spec{Seed: 1, Chunk: 64}.Append(nil, 7))
	published, err := json.Marshal(chunk)
	must(t, err)
	body := string(appendPublish(nil, []byte(chunk)))
	if !strings.Contains(body, string(published)) || !json.Valid([]byte(body)) {
		t.Errorf("published as %s, want %s in it", body, published)
	}
	push := fmt.Sprintf(`{"push":{"channel":"chunks","pub":{"data":%s}}}`, published)
	other := fmt.Sprintf(`{"push":{"pub":{"offset":3,"data":%s},"channel":"chunks"}}`, published)
	for name, test := range map[string]struct {
		messages []string
		chunks   int
		err      string
	}{
		"one":               {[]string{push}, 1, ""},
		"several in one":    {[]string{push + "\n" + push + "\n", push}, 3, ""},
		"written otherwise": {[]string{other + "\n" + push}, 2, ""},
		"answers":           {[]string{`{"id":1,"connect":{"client":"c","ping":25,"pong":true}}` + "\n" + `{"id":2,"subscribe":{}}`}, 0, ""},
		"refused":           {[]string{`{"id":2,"error":{"code":103,"message":"permission denied"}}`}, 0, "103 permission denied"},
		"no JSON":           {[]string{`<html>`}, 0, "no JSON"},
	} {
		to, out := new(taker), new(wire)
		s := &subscriber{Link: out, to: to}
		var in []byte
		for _, m := range test.messages {
			in = append(appendHead(in, opText, len(m)), m...)
		}
		err := s.Received(in, time.Time{})
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: %v", name, err)
		}
		want := bytes.Repeat(append(appendHead(nil, opBinary, len(chunk)), chunk...), test.chunks)
		if !bytes.Equal(to.got, want) || len(out.wrote) > 0 {
			t.Errorf("%s: %q, want %q; answered %q", name, to.got, want, out.wrote)
		}
	}
}

func TestSubscriberAnswersPings(t *testing.T) {
	out := new(wire)
	s := &subscriber{Link: out, to: new(taker)}
	must(t, s.Received(append(appendHead(nil, opText, 2), "{}"...), time.Time{}))
	if len(out.wrote) != len(clientFrame(opText, []byte("{}"))) {
		t.Errorf("answered %q", out.wrote)
	}
}

// api answers as Centrifugo's does.
type api struct {
	batches [][]byte
	clients int
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.Header.Get("X-API-Key") != "k":
		http.Error(w, "who are you", http.StatusUnauthorized)
	case r.URL.Path == "/api/batch":
		a.batches = append(a.batches, body)
		fmt.Fprint(w, `{"replies":[{"publish":{}}]}`)
	default:
		a.clients++
		fmt.Fprintf(w, `{"result":{"channels":{"chunks":{"num_clients":%d}}}}`, a.clients)
	}
}

// Every chunk is published once and in order; those that are due together go
// together.
func TestPublish(t *testing.T) {
	defer http.DefaultClient.CloseIdleConnections()
	a := new(api)
	server := httptest.NewServer(a)
	defer server.Close()
	p := &Peer{Name: Centrifugo, URL: server.URL, Key: "k"}
	spec := pattern.Spec{Seed: 1, Chunk: 64, Rate: 10_000, Start: time.Now().Add(-time.Hour), Chunks: 3 * maxBatch}
	must(t, p.Publish(t.Context(), spec))
	var all []byte
	for _, body := range a.batches {
		var batch struct {
			Commands []struct {
				Publish struct{ Channel, Data string }
			}
		}
		must(t, json.Unmarshal(body, &batch))
		for _, c := range batch.Commands {
			all = append(all, c.Publish.Data...)
		}
	}
	var want []byte
	for k := range spec.Chunks {
		want = spec.Append(want, k)
	}
	if !bytes.Equal(all, want) || len(a.batches) != 3 {
		t.Errorf("%d bytes in %d calls, want %d in 3", len(all), len(a.batches), len(want))
	}
	must(t, p.AwaitSubscribers(t.Context(), 3))
	p.Key = "x"
	if err := p.Publish(t.Context(), spec); err == nil || strings.Contains(err.Error(), p.URL) {
		t.Errorf("with another key: %v", err)
	}
}

// typed is a Handler that tells of output.
type typed chan string

func (c typed) Output(p []byte, _ time.Time) { c <- string(p) }
func (typed) Jump(client.Jump)               {}
func (typed) Lost(time.Time, error)          {}

// A terminal of what speaks as ttyd does echoes what is typed once the key was
// given, and its end is told.
func TestTerminal(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(serveTTYD))
	defer server.Close()
	p := &Peer{Name: TTYD, URL: server.URL, Key: "secret"}
	term, err := p.Echo(t.Context(), newLoop(t))
	must(t, err)
	got := make(typed, 1)
	term.Follow(got)
	for _, key := range []string{"a", "b"} {
		must(t, term.Type(t.Context(), key, nil))
		if echoed := <-got; echoed != key {
			t.Errorf("%q is echoed as %q", key, echoed)
		}
	}
	must(t, term.Type(t.Context(), "\x04", nil))
	if err := term.Await(t.Context(), "nothing", func() bool { return false }); err == nil {
		t.Error("the end isn't told")
	}
	term.Close()
	if _, err := (&Peer{Name: TTYD, URL: server.URL + "/no", Key: "secret"}).Echo(t.Context(), newLoop(t)); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("at another address: %v", err)
	}
}

// A peer that is still starting is waited for.
func TestAwait(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &Peer{Name: TTYD, URL: "http://" + listener.Addr().String()}
	must(t, p.Await(t.Context()))
	listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Await(ctx); err == nil || !strings.Contains(err.Error(), "ttyd isn't there") {
		t.Errorf("nobody is there: %v", err)
	}
}

// serveTTYD is ttyd with the guarded source in its terminal.
func serveTTYD(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/ws" {
		http.NotFound(w, r)
		return
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"tty"}})
	if err != nil {
		return
	}
	defer conn.CloseNow()
	say := func(text string) { _ = conn.Write(r.Context(), websocket.MessageBinary, []byte(text)) } // the client notices
	say("1a title")
	for _, step := range []struct{ want, answer string }{
		{ttydHello, "2{}"}, {"0secret\n", "0secret\r\nready\r\n"}, {"0echo\n", "0echoing\r\n"},
	} {
		if _, data, err := conn.Read(r.Context()); err != nil || string(data) != step.want {
			return
		}
		say(step.answer)
	}
	for {
		_, data, err := conn.Read(r.Context())
		if err != nil || string(data) == "0\x04" {
			return
		}
		say(string(data))
	}
}
