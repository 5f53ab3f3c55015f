package baseline

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/loadtest/internal/pattern"
	"github.com/fairlead/fairlead/tunnel"
)

// TestMain is the process, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == Role {
		if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func start(t testing.TB) (context.Context, *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	self, err := os.Executable()
	must(t, err)
	s, err := Start(ctx, self)
	must(t, err)
	t.Cleanup(s.Stop)
	return ctx, s
}

// What is sent over each transport arrives, whole and as it was.
func TestTransfers(t *testing.T) {
	ctx, s := start(t)
	const long = 100 * time.Millisecond
	check := func(name string, got Transfer, err error) {
		t.Helper()
		must(t, err)
		if got.Sent == 0 || got.Received != got.Sent || got.Corrupt || got.Rate() == 0 {
			t.Errorf("%s: %+v", name, got)
		}
		t.Logf("%s: %.0f MB/s", name, got.Rate()/1e6)
	}
	got, err := s.SendTCP(ctx, "", long)
	check("TCP", got, err)
	q, err := s.DialQUIC(ctx, "")
	must(t, err)
	defer q.Close()
	tun, err := s.DialTunnel(ctx, "", tunnel.CarrierQUIC, "sb_quic")
	must(t, err)
	defer tun.Close()
	web, err := s.DialTunnel(ctx, "", tunnel.CarrierWebSocket, "sb_websocket")
	must(t, err)
	defer web.Close()
	for range 2 {
		got, err = q.Send(ctx, long)
		check("QUIC", got, err)
		got, err = tun.Send(ctx, 1, long)
		check("tunnel", got, err)
		got, err = tun.Send(ctx, 16, long)
		check("tunnel, 16 streams", got, err)
		got, err = web.Send(ctx, 1, long)
		check("tunnel over WebSocket", got, err)
	}
}

// A transfer that loses or changes a byte says so.
func TestDrainCompares(t *testing.T) {
	whole := bytes.Clone(payload()[:100_000])
	for _, row := range []struct {
		name    string
		data    []byte
		corrupt bool
	}{
		{"as it was", whole, false},
		{"a byte less", append(bytes.Clone(whole[:1000]), whole[1001:]...), true},
		{"a packet less", append(bytes.Clone(whole[:1200]), whole[2400:]...), true},
		{"another byte", append(append(bytes.Clone(whole[:70_000]), whole[70_000]^1), whole[70_001:]...), true},
	} {
		pipe := &halves{in: bytes.NewReader(row.data)}
		must(t, drain(pipe))
		if got := strings.Contains(pipe.out.String(), `"corrupt":true`); got != row.corrupt {
			t.Errorf("%s: %s", row.name, pipe.out.String())
		}
	}
}

type halves struct {
	in  *bytes.Reader
	out bytes.Buffer
}

func (h *halves) Read(p []byte) (int, error)  { return h.in.Read(p) }
func (h *halves) Write(p []byte) (int, error) { return h.out.Write(p) }

// The terminal's output comes as it is, and its input gets there.
func TestTerminal(t *testing.T) {
	ctx, s := start(t)
	conn, _, err := websocket.Dial(ctx, s.TerminalURL("stty raw -echo; echo ready; exec cat"), nil)
	must(t, err)
	defer conn.CloseNow()
	expect := func(text string) {
		t.Helper()
		var seen []byte
		for !bytes.Contains(seen, []byte(text)) {
			_, data, err := conn.Read(ctx)
			must(t, err)
			seen = append(seen, data...)
		}
	}
	expect("ready")
	must(t, conn.Write(ctx, websocket.MessageBinary, []byte("typed")))
	expect("typed")
}

// Every viewer gets every chunk, one message each.
func TestWriteLoop(t *testing.T) {
	ctx, s := start(t)
	const viewers = 3
	var conns []*websocket.Conn
	for range viewers {
		conn, _, err := websocket.Dial(ctx, s.ViewerURL(), nil)
		must(t, err)
		defer conn.CloseNow()
		must(t, conn.Write(ctx, websocket.MessageText, []byte(`{"type":"ack"}`)))
		conns = append(conns, conn)
	}
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for n := 0; n < viewers; <-poll.C {
		var err error
		n, err = s.Viewers(ctx)
		must(t, err)
	}
	for _, size := range []int{64, 100, 1000, 70_000} {
		spec := pattern.Spec{Seed: 1, Chunk: size, Rate: 200, Start: time.Now(), Chunks: 4}
		sent, err := s.Send(ctx, spec)
		must(t, err)
		if sent.Viewers != viewers || sent.Chunks != spec.Chunks || sent.Writes != viewers*spec.Chunks || sent.Gone != 0 {
			t.Errorf("%d bytes: %+v", size, sent)
		}
		for _, conn := range conns {
			conn.SetReadLimit(1 << 20)
			for k := range spec.Chunks {
				_, data, err := conn.Read(ctx)
				must(t, err)
				if !bytes.Equal(data, spec.Append(nil, k)) {
					t.Fatalf("chunk %d of %d bytes is another", k, size)
				}
			}
		}
	}
	conns[0].CloseNow()
	for n := viewers; n == viewers; <-poll.C {
		var err error
		n, err = s.Viewers(ctx)
		must(t, err)
	}
}

// What is put is what is got, and names stay in their directory.
func TestDisk(t *testing.T) {
	ctx, s := start(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CA())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	do := func(method, url, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		must(t, err)
		resp, err := client.Do(req)
		must(t, err)
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		must(t, err)
		return resp.StatusCode, string(data)
	}
	if status, _ := do(http.MethodPost, s.CommandURL(), "{}"); status != http.StatusOK {
		t.Errorf("command: status %d", status)
	}
	do(http.MethodPut, s.FilesURL()+"/.a-file", "content")
	for _, files := range []string{s.FilesURL(), s.PlainFilesURL()} {
		if status, got := do(http.MethodGet, files+"/.a-file", ""); status != http.StatusOK || got != "content" {
			t.Errorf("%s: status %d, %q", files, status, got)
		}
	}
	for _, name := range []string{"%2e%2e%2fledger", "none"} {
		if status, _ := do(http.MethodGet, s.FilesURL()+"/"+name, ""); status == http.StatusOK {
			t.Errorf("%s was served", name)
		}
	}
	if resp, err := client.Get(strings.Replace(s.FilesURL(), "/files", "x/files", 1) + "/a-file"); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("without the secret: %v", err)
	}
}
