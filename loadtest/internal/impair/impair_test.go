package impair

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fairlead/fairlead/deploy/program"
	network "github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An output is what a program has printed so far.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{}
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.written <- struct{}{}:
	default:
	}
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// find waits until the program has printed what matches.
func (o *output) find(t testing.TB, pattern string) string {
	t.Helper()
	late := time.After(time.Minute)
	for {
		if m := regexp.MustCompile(pattern).FindStringSubmatch(o.String()); m != nil {
			return m[1]
		}
		select {
		case <-o.written:
		case <-late:
			t.Fatalf("%s is not in %q", pattern, o)
		}
	}
}

// start runs the command until the test ends or stop is called.
func start(t testing.TB, args ...string) (out *output, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out = &output{written: make(chan struct{}, 1)}
	status := make(chan int, 1)
	go func() { status <- execute(ctx, out, args...) }() // awaited by stop
	stop = sync.OnceValue(func() int {
		cancel()
		return <-status
	})
	t.Cleanup(func() { stop() })
	return out, stop
}

func execute(ctx context.Context, out io.Writer, args ...string) int {
	return program.Execute(ctx, program.System{
		Args: args, LookupEnv: func(string) (string, bool) { return "", false }, Stdout: out, Stderr: out,
	}, "impair", "a bad network", Declare)
}

// call gives an order and returns the status and the answer.
func call(t testing.TB, method, url, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must(t, err)
	if len(header) == 2 {
		req.Header.Set(header[0], header[1])
		if header[0] == "Host" {
			req.Host = header[1]
		}
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	must(t, err)
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, strings.TrimSpace(string(data))
}

// sink returns a UDP address whose packets can be awaited.
func sink(t testing.TB) net.PacketConn {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

// arrives reports whether a datagram that is sent to an address arrives in
// time.
func arrives(t testing.TB, addr string, at net.PacketConn, within time.Duration) bool {
	t.Helper()
	conn, err := net.Dial("udp", addr)
	must(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("x"))
	must(t, err)
	must(t, at.SetReadDeadline(time.Now().Add(within)))
	_, _, err = at.ReadFrom(make([]byte, 8))
	return err == nil
}

func TestUDP(t *testing.T) {
	at := sink(t)
	out, stop := start(t, "udp", "--target", at.LocalAddr().String(), "--profile", "delay=1ms", "--seed", "7", "--control", "127.0.0.1:0")
	addr := out.find(t, `impair: (127\.0\.0\.1:\d+) leads to `+regexp.QuoteMeta(at.LocalAddr().String())+`, profile delay=1ms, seed 7\n`)
	url := out.find(t, `orders at (http://\S+)\n`)
	if !arrives(t, addr, at, time.Minute) {
		t.Error("nothing passes")
	}
	if code, said := call(t, "PUT", url+"/profile", "delay=2ms,loss=1%"); code != 200 || said != "delay=2ms,loss=1%" {
		t.Errorf("PUT /profile: %d %s", code, said)
	}
	if code, said := call(t, "GET", url+"/profile", ""); code != 200 || said != "delay=2ms,loss=1%" {
		t.Errorf("GET /profile: %d %s", code, said)
	}
	if code, said := call(t, "POST", url+"/blackhole?side=up", ""); code != 200 || arrives(t, addr, at, 50*time.Millisecond) {
		t.Errorf("a blackhole lets something pass: %d %s", code, said)
	}
	if code, said := call(t, "POST", url+"/blackhole?on=false", ""); code != 200 || !arrives(t, addr, at, time.Minute) {
		t.Errorf("after the blackhole: %d %s", code, said)
	}
	if code, said := call(t, "POST", url+"/rebind", ""); code != 200 || said != `{"peers":3}` {
		t.Errorf("POST /rebind: %d %s", code, said)
	}
	var counts network.Counts
	_, said := call(t, "GET", url+"/counts", "")
	must(t, json.Unmarshal([]byte(said), &counts))
	if counts.Up.Received != 3 || counts.Up.Blackholed != 1 {
		t.Errorf("GET /counts: %s", said)
	}
	if status := stop(); status != 0 {
		t.Errorf("exit %d: %s", status, out)
	}
	out.find(t, `impair: (\{"up":\{"received":3,)`)
}

func TestTCP(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	out, stop := start(t, "tcp", "--target", listener.Addr().String(), "--control", "127.0.0.1:0")
	addr := out.find(t, `impair: (127\.0\.0\.1:\d+) leads to`)
	url := out.find(t, `orders at (http://\S+)\n`)
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	defer conn.Close()
	far, err := listener.Accept()
	must(t, err)
	defer far.Close()
	if code, said := call(t, "PUT", url+"/profile", "loss=1%"); code != 400 || !strings.Contains(said, "for UDP") {
		t.Errorf("loss: %d %s", code, said)
	}
	if code, _ := call(t, "POST", url+"/blackhole?side=down", ""); code != 200 {
		t.Errorf("POST /blackhole: %d", code)
	}
	if code, said := call(t, "POST", url+"/cut", ""); code != 200 || said != `{"connections":1}` {
		t.Errorf("POST /cut: %d %s", code, said)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection was not cut")
	}
	if code, _ := call(t, "POST", url+"/refuse", ""); code != 200 {
		t.Errorf("POST /refuse: %d", code)
	}
	if code, said := call(t, "POST", url+"/rebind", ""); code != 404 {
		t.Errorf("POST /rebind: %d %s", code, said)
	}
	if status := stop(); status != 0 {
		t.Errorf("exit %d: %s", status, out)
	}
}

func TestWrongOrders(t *testing.T) {
	at := sink(t)
	out, _ := start(t, "udp", "--target", at.LocalAddr().String(), "--control", "127.0.0.1:0")
	url := out.find(t, `orders at (http://\S+)\n`)
	for _, c := range []struct {
		method, path, body, says string
		code                     int
		header                   []string
	}{
		{"PUT", "/profile", "delay=1", "missing unit", 400, nil},
		{"PUT", "/profile", strings.Repeat("loss=1%,", 4096), "too large", 400, nil},
		{"POST", "/blackhole?side=left", "", "side must be up, down or both", 400, nil},
		{"POST", "/blackhole?on=maybe", "", "on must be true or false", 400, nil},
		{"GET", "/blackhole", "", "", 405, nil},
		{"POST", "/rebind", "", "not for web pages", 403, []string{"Origin", "http://127.0.0.1"}},
		{"POST", "/rebind", "", "not for web pages", 403, []string{"Host", "evil.example"}},
	} {
		if code, said := call(t, c.method, url+c.path, c.body, c.header...); code != c.code || !strings.Contains(said, c.says) {
			t.Errorf("%s %s: %d %s", c.method, c.path, code, said)
		}
	}
}

func TestWrongCalls(t *testing.T) {
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"udp", 1, "target"},
		{"udp --target 127.0.0.1:1 --profile delay=x", 2, "profile: delay"},
		{"udp --target 127.0.0.1:1 --seed x", 2, `seed "x" is not a whole number`},
		{"tcp --target 127.0.0.1:1 --profile loss=1%", 2, "for UDP"},
		{"udp --target nowhere", 1, "target"},
		{"udp --target 127.0.0.1:1 --control 256.0.0.1:0", 2, "not a loopback address"},
		{"udp --target 127.0.0.1:1 --control :8080", 2, "hint: orders have no password"},
		{"tcp --target 127.0.0.1:1 --control 0.0.0.0:0", 2, "not a loopback address"},
		{"tcp --target 127.0.0.1:1 --control [::]:0", 2, "not a loopback address"},
		{"tcp --target 127.0.0.1:1 --control 192.0.2.1:0", 2, "not a loopback address"},
		{"tcp --target 127.0.0.1:1 --control localhost.example:0", 2, "not a loopback address"},
		{"tcp --target 127.0.0.1:1 --control 127.0.0.1", 2, "not HOST:PORT"},
	} {
		var out bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if status := execute(ctx, &out, strings.Fields(c.args)...); status != c.status || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: %d %s", c.args, status, out.String())
		}
		cancel()
	}
}
