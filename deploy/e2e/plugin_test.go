package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

// startPlugin runs a program in a terminal that registers itself as a plugin.
func startPlugin(ctx context.Context, t testing.TB, s *Stack, name string) (protocol.PTYID, int) {
	t.Helper()
	alice := s.Ready.User("alice")
	id, err := s.NewPTY(ctx, alice, `./webapp | { IFS=: read -r _ port _; ./sandbox-agent plugin `+name+` "$port" 2>&1; cat; }`)
	must(t, err)
	term, err := alice.Attach(ctx, s.Ready.SessionID, id, "")
	must(t, err)
	t.Cleanup(term.Close)
	must(t, term.Expect(ctx, "leads to port"))
	for _, p := range plugins(ctx, t, s, "alice") {
		if p.PTYID == id {
			return id, p.Port
		}
	}
	t.Fatal("the plugin isn't listed")
	return "", 0
}

type plugin struct {
	Name  string         `json:"name"`
	PTYID protocol.PTYID `json:"pty_id"`
	Port  int            `json:"port"`
}

// plugins is GET /sessions/{sid}/plugins.
func plugins(ctx context.Context, t testing.TB, s *Stack, user string) []plugin {
	t.Helper()
	u := s.Ready.User(user)
	grant, err := u.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	status, body, err := Call(ctx, http.MethodGet, u.Base+"/sessions/"+string(s.Ready.SessionID)+"/plugins", grant, nil)
	must(t, err)
	var list struct {
		Plugins []plugin `json:"plugins"`
	}
	if status != http.StatusOK || json.Unmarshal(body, &list) != nil {
		t.Fatalf("plugins: %d %s", status, body)
	}
	return list.Plugins
}

// dialPlugin opens the socket of a plugin as the web client does.
func dialPlugin(ctx context.Context, t testing.TB, s *Stack, user, name string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	u := s.Ready.User(user)
	grant, err := u.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	status, body, err := Call(ctx, http.MethodPost, u.Base+"/chat-session", grant, nil)
	must(t, err)
	var ticket struct {
		Ticket string `json:"ticket"`
	}
	if status != http.StatusOK || json.Unmarshal(body, &ticket) != nil {
		t.Fatalf("ticket: %d %s", status, body)
	}
	conn, resp, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(u.Base, "http")+"/plugin-ws/"+name+"?token="+ticket.Ticket, &websocket.DialOptions{
		HTTPHeader: http.Header{"Origin": {u.Base}, "Cookie": {"fairlead_app=x; other=y"}},
	})
	if err == nil {
		conn.SetReadLimit(2 << 20)
		t.Cleanup(func() { conn.CloseNow() })
	}
	return conn, resp, err
}

// pluginSays sends a text and returns the answer.
func pluginSays(ctx context.Context, t testing.TB, conn *websocket.Conn, text string) string {
	t.Helper()
	must(t, conn.Write(ctx, websocket.MessageText, []byte(text)))
	_, data, err := conn.Read(ctx)
	must(t, err)
	return string(data)
}

// closedWith reads until a socket ends, and returns with what.
func closedWith(ctx context.Context, conn *websocket.Conn) string {
	for {
		_, _, err := conn.Read(ctx)
		if code := websocket.CloseStatus(err); err != nil {
			return fmt.Sprint(int(code))
		}
	}
}

// openPorts returns where a stack's relay and sandbox listen, with all that runs in
// the sandbox, by ss, and whoever has a port.
func openPorts(t *testing.T, s *Stack, port int) (all []string) {
	t.Helper()
	out, err := exec.Command("ss", "-Hltnup").Output()
	must(t, err)
	ours := []string{fmt.Sprintf("pid=%d,", s.Ready.Relays[0].PID), fmt.Sprintf(":%d ", port)}
	for _, pid := range below(t, s.Ready.Sandboxes[0].PID) {
		ours = append(ours, fmt.Sprintf("pid=%d,", pid))
	}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && slices.ContainsFunc(ours, func(one string) bool { return strings.Contains(line, one) }) {
			all = append(all, fields[0]+" "+fields[4])
		}
	}
	return all
}

// newPorts are those of openPorts that weren't open before.
func newPorts(t *testing.T, s *Stack, port int, before []string) []string {
	t.Helper()
	return slices.DeleteFunc(openPorts(t, s, port), func(one string) bool { return slices.Contains(before, one) })
}

// below returns a process, all that it has started, and what these have left behind
// in their terminals.
func below(t *testing.T, root int) []int {
	t.Helper()
	out, err := exec.Command("ps", "-eo", "pid=,ppid=,sess=").Output()
	must(t, err)
	children := map[int][]int{}
	for line := range strings.Lines(string(out)) {
		var pid, parent, session int
		if _, err := fmt.Sscan(line, &pid, &parent, &session); err == nil {
			children[parent] = append(children[parent], pid)
			if session != pid && session != parent {
				children[session] = append(children[session], pid)
			}
		}
	}
	all := []int{root}
	for i := 0; i < len(all); i++ {
		for _, pid := range children[all[i]] {
			if !slices.Contains(all, pid) {
				all = append(all, pid)
			}
		}
	}
	return all
}

// TestPlugin: a program of a terminal is a plugin under a name of its own, and the
// only port that is opened for that is its own.
func TestPlugin(t *testing.T) {
	s := own(t)
	ctx := within(t)
	dir := workspace(t, s.Ready.Sandboxes[0].PID)
	install(t, dir, "webapp")
	install(t, dir, "sandbox-agent")
	before := openPorts(t, s, -1)
	id, port := startPlugin(ctx, t, s, "charts")
	conn, _, err := dialPlugin(ctx, t, s, "alice", "charts")
	must(t, err)
	if got := pluginSays(ctx, t, conn, "hello"); got != "hello" {
		t.Error(got)
	}
	opened := newPorts(t, s, port, before)
	if own := fmt.Sprintf("tcp 127.0.0.1:%d", port); !slices.Equal(opened, []string{own}) {
		t.Errorf("%v listen, not %s alone", opened, own)
	}
	if got := pluginSays(ctx, t, conn, "headers"); got != `["Connection","Sec-Websocket-Key","Sec-Websocket-Version","Upgrade"]` {
		t.Error(got)
	}
	large := strings.Repeat("0123456789abcdef", 1<<16)
	must(t, conn.Write(ctx, websocket.MessageBinary, []byte(large)))
	if kind, data, err := conn.Read(ctx); err != nil || kind != websocket.MessageBinary || string(data) != large {
		t.Errorf("%v of %d bytes, %v", kind, len(data), err)
	}
	must(t, conn.Write(ctx, websocket.MessageText, []byte("close 4321")))
	if got := closedWith(ctx, conn); got != "4321" {
		t.Errorf("closed with %s", got)
	}
	tooLarge, _, err := dialPlugin(ctx, t, s, "alice", "charts")
	must(t, err)
	tooLarge.Write(ctx, websocket.MessageBinary, make([]byte, 1<<20+1))
	if got := closedWith(ctx, tooLarge); got != "1009" {
		t.Errorf("a message of too much: %s", got)
	}
	for name, want := range map[string]string{"other": "4404", "%2e": "4400", "a.b": "4400"} {
		conn, _, err := dialPlugin(ctx, t, s, "alice", name)
		must(t, err)
		if got := closedWith(ctx, conn); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if _, resp, err := dialPlugin(ctx, t, s, "carol", "charts"); err == nil || resp == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("carol, who has no plugins: %v, %v", resp, err)
	}

	// A second terminal can't have the name, nor register the first one's port.
	second := attach(t, s, "alice", newPTY(t, s, fmt.Sprintf("./sandbox-agent plugin mine --wait 1ms %d; ./webapp | { IFS=: read -r _ port _; ./sandbox-agent plugin charts $port; cat; }", port)))
	if ownUsers(t, s) {
		must(t, second.Expect(ctx, "is not this terminal's"))
	}
	must(t, second.Expect(ctx, `another terminal of the session has the plugin "charts"`))

	// One that dies under a socket is an error of its own, and then runs no more.
	dying, _, err := dialPlugin(ctx, t, s, "alice", "charts")
	must(t, err)
	must(t, dying.Write(ctx, websocket.MessageText, []byte("die")))
	if got := closedWith(ctx, dying); got != "4502" {
		t.Errorf("a plugin that dies: %s", got)
	}
	dead, _, err := dialPlugin(ctx, t, s, "alice", "charts")
	must(t, err)
	if got := closedWith(ctx, dead); got != "4404" {
		t.Errorf("a dead plugin: %s", got)
	}
	for _, p := range plugins(ctx, t, s, "alice") {
		if p.PTYID == id {
			t.Errorf("%s is listed", p.Name)
		}
	}
}

// ownUsers reports whether terminals have users of their own.
func ownUsers(t *testing.T, s *Stack) bool {
	t.Helper()
	ctx := within(t)
	term := attach(t, s, "alice", newPTY(t, s, "echo uid=$(id -u).; cat"))
	must(t, term.Expect(ctx, "uid="))
	return !strings.Contains(string(term.Output()), "uid=0.")
}

// BenchmarkPlugin: a message to a plugin and back through relay and tunnel, beside
// the same on loopback, and messages of 1 MiB each way. The median is to be twice
// the direct one at most, and 1 MiB messages to pass at 200 MB/s.
func BenchmarkPlugin(b *testing.B) {
	s, ctx := own(b), b.Context()
	dir := workspace(b, s.Ready.Sandboxes[0].PID)
	install(b, dir, "webapp")
	install(b, dir, "sandbox-agent")
	_, port := startPlugin(ctx, b, s, "it")
	far, _, err := dialPlugin(ctx, b, s, "alice", "it")
	must(b, err)
	near, _, err := websocket.Dial(ctx, fmt.Sprintf("ws://127.0.0.1:%d/ws", port), nil)
	must(b, err)
	defer near.CloseNow()
	near.SetReadLimit(2 << 20)
	echo := func(conn *websocket.Conn) func() error {
		return func() error {
			err := conn.Write(ctx, websocket.MessageText, []byte("a message of a common size, of about sixty-four bytes or so"))
			if err == nil {
				_, _, err = conn.Read(ctx)
			}
			return err
		}
	}
	var direct, through []time.Duration
	const rounds, messages = 200, 64
	var rates [4][]float64
	for b.Loop() {
		for range rounds {
			timed(b, &direct, echo(near))
			timed(b, &through, echo(far))
		}
		for i, conn := range []*websocket.Conn{near, far} {
			began := time.Now()
			must(b, conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, "send %d", messages)))
			for range messages {
				_, message, err := conn.Reader(ctx)
				must(b, err)
				_, err = io.Copy(io.Discard, message)
				must(b, err)
			}
			rates[i] = append(rates[i], messages*(1<<20)/1e6/time.Since(began).Seconds())
			began = time.Now()
			must(b, conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, "take %d", messages)))
			for range messages {
				must(b, conn.Write(ctx, websocket.MessageBinary, make([]byte, 1<<20)))
			}
			_, _, err := conn.Read(ctx)
			must(b, err)
			rates[2+i] = append(rates[2+i], messages*(1<<20)/1e6/time.Since(began).Seconds())
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(millis(quantile(direct, 0.5)), "direct-p50-ms")
	b.ReportMetric(millis(quantile(through, 0.5)), "p50-ms")
	b.ReportMetric(float64(quantile(through, 0.5))/float64(quantile(direct, 0.5)), "p50-ratio")
	for i, name := range []string{"direct-down-MB/s", "down-MB/s", "direct-up-MB/s", "up-MB/s"} {
		slices.Sort(rates[i])
		b.ReportMetric(rates[i][len(rates[i])/2], name)
	}
}
