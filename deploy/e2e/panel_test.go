package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/fairlead/fairlead/protocol"
)

// panelExtension is the extension whose side panel the tests are, panelOrigin its
// origin.
const panelExtension = "abcdefghijklmnopabcdefghijklmnop"

const panelOrigin = "chrome-extension://" + panelExtension

// stubborn is a claude that neither INT nor HUP ends, and that tells what it finds.
// What was typed of a line when its patience ends belongs to the next read's. Its diary
// has when it was interrupted, and each time that it lived on until, in
// seconds.
const stubborn = `#!/bin/bash
trap '' HUP
trap 'asked=${asked:-$EPOCHREALTIME}' INT
echo "pid=$$ size=$(stty size)."
while true; do
	if ! read -r -t 0.1 line; then
		begun+=$line
		[ "$asked" ] && echo "$asked $EPOCHREALTIME" >>"${0%/*}/diary/claude" && sleep 0.05
		continue
	fi
	line=$begun$line begun=
	case "$line" in
	tab) cat ~/active-tab.json ;;
	there) cat ~/claude-available.json ;;
	quit) exit 0 ;;
	*) echo "got:$line." ;;
	esac
done
`

// A side is the side panel of alice's browser: a stand-in that sends what the real
// ones send.
type side struct {
	t   *testing.T
	s   *Stack
	ctx context.Context
}

// newSide starts a stack whose sandbox finds a stubborn claude.
func newSide(t *testing.T) (p *side, claude string) {
	t.Helper()
	dir, err := os.MkdirTemp(openTemp, tempName())
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	claude = filepath.Join(dir, "claude")
	must(t, os.WriteFile(claude, []byte(stubborn), 0o755))
	must(t, os.Mkdir(filepath.Join(dir, "diary"), 0o700))
	must(t, os.Chmod(filepath.Join(dir, "diary"), 0o777)) // it runs under a user of its own
	file := filepath.Join(t.TempDir(), "sandbox.yaml")
	must(t, os.WriteFile(file, []byte("program-path: ["+dir+"]\n"), 0o600))
	return &side{t, own(t, "--sandbox-config", file, "--extension-ids", panelExtension), within(t)}, claude
}

// ask sends a request under a new grant of alice's. out is the answer's JSON.
func (p *side) ask(method, path, body string, want int, out any) *http.Response {
	p.t.Helper()
	alice := p.s.Ready.User("alice")
	grant, err := alice.Grant(p.ctx, p.s.Ready.SessionID)
	must(p.t, err)
	r, err := http.NewRequestWithContext(p.ctx, method, alice.Base+path, strings.NewReader(body))
	must(p.t, err)
	r.Header.Set("Authorization", "Bearer "+grant)
	if method != http.MethodGet { // as Chromium does for an extension
		r.Header.Set("Origin", panelOrigin)
	}
	resp, err := http.DefaultClient.Do(r)
	must(p.t, err)
	defer resp.Body.Close()
	if resp.StatusCode != want {
		p.t.Fatalf("%s %s: %d", method, path, resp.StatusCode)
	}
	must(p.t, json.NewDecoder(resp.Body).Decode(out))
	return resp
}

// available asks for claude as the panel in Chromium does, which sends its cookies and
// no Origin, and returns its path, empty if there is none.
func (p *side) available(cookies []*http.Cookie) string {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.ctx, http.MethodGet, p.s.Ready.User("alice").Base+"/claude-available", nil)
	must(p.t, err)
	for _, cookie := range cookies {
		r.AddCookie(cookie)
	}
	resp, err := http.DefaultClient.Do(r)
	must(p.t, err)
	defer resp.Body.Close()
	var there struct {
		Available bool
		Path      string
	}
	must(p.t, json.NewDecoder(resp.Body).Decode(&there))
	if !there.Available {
		return ""
	}
	return there.Path
}

// A sidePass is the answer of POST /pty-session.
type sidePass struct {
	TerminalPort int
	SessionID    protocol.PTYID
	AttachToken  string
}

// open opens the socket at the port that the answer named.
func (p *side) open(m sidePass, header http.Header, subprotocols ...string) *websocket.Conn {
	p.t.Helper()
	header.Set("Origin", panelOrigin)
	url := "ws://127.0.0.1:" + strconv.Itoa(m.TerminalPort) + "/ws"
	conn, _, err := websocket.Dial(p.ctx, url, &websocket.DialOptions{HTTPHeader: header, Subprotocols: subprotocols})
	must(p.t, err)
	conn.SetReadLimit(-1)
	p.t.Cleanup(func() { conn.CloseNow() })
	return conn
}

func (p *side) send(conn *websocket.Conn, kind websocket.MessageType, data string) {
	p.t.Helper()
	must(p.t, conn.Write(p.ctx, kind, []byte(data)))
}

// expect reads until the output, or a text frame, contains want, and returns all.
func (p *side) expect(conn *websocket.Conn, want string) string {
	p.t.Helper()
	var seen bytes.Buffer
	for !strings.Contains(seen.String(), want) {
		_, data, err := conn.Read(p.ctx)
		if err != nil {
			p.t.Fatalf("%v instead of %q, after %q", err, want, seen.String())
		}
		seen.Write(data)
	}
	return seen.String()
}

// terminal returns what the list says of a terminal, nil for nothing.
func (p *side) terminal(id protocol.PTYID) *protocol.PTYInfo {
	p.t.Helper()
	var list protocol.PTYList
	alice := p.s.Ready.User("alice")
	grant, err := alice.Grant(p.ctx, p.s.Ready.SessionID)
	must(p.t, err)
	must(p.t, call(p.ctx, http.StatusOK, &list, http.MethodGet, alice.Base+"/sessions/"+string(p.s.Ready.SessionID)+"/ptys", grant, nil))
	for _, one := range list.PTYs {
		if one.ID == id {
			return &one
		}
	}
	return nil
}

// await waits until holds.
func (p *side) await(what string, holds func() bool) {
	p.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-p.ctx.Done():
			p.t.Fatalf("never: %s", what)
		}
	}
}

// pidOf reads the process id that the stubborn claude has printed.
func pidOf(t *testing.T, printed string) int {
	t.Helper()
	_, rest, _ := strings.Cut(printed, "pid=")
	digits, _, _ := strings.Cut(rest, " ")
	pid, err := strconv.Atoi(digits)
	must(t, err)
	return pid
}

// livedOn returns for how long the stubborn claude went on once it was interrupted,
// by its own clock, which doesn't count how long others took to see its end.
func livedOn(t *testing.T, claude string) time.Duration {
	t.Helper()
	diary, err := os.ReadFile(filepath.Join(filepath.Dir(claude), "diary/claude"))
	if err != nil {
		t.Fatalf("it was never interrupted: %v", err)
	}
	lines := strings.Split(strings.TrimSpace(string(diary)), "\n")
	asked, last, _ := strings.Cut(lines[len(lines)-1], " ")
	from, err := strconv.ParseFloat(asked, 64)
	must(t, err)
	to, err := strconv.ParseFloat(last, 64)
	must(t, err)
	return time.Duration((to - from) * float64(time.Second))
}

// Seed 000's panel with the real programs: nothing runs before its first byte; claude
// has the panel's size and finds the files at home; and one that ignores INT and HUP
// is killed when the panel goes, not before 3 s.
func TestSidePanelTerminal(t *testing.T) {
	p, claude := newSide(t)
	before := openPorts(t, p.s, -1)
	var health struct {
		Status      string
		ChatEnabled bool
		Token       *string
	}
	if p.ask(http.MethodGet, "/health", "", http.StatusOK, &health); health.Status != "healthy" || !health.ChatEnabled || health.Token != nil {
		t.Errorf("%+v", health)
	}
	var m sidePass
	cookies := p.ask(http.MethodPost, "/pty-session", "", http.StatusOK, &m).Cookies()
	if path := p.available(cookies); path != claude {
		t.Errorf("%q", path)
	}
	cookie := cookies[1] // Chromium sends the other one with no socket
	conn := p.open(m, http.Header{"Cookie": {cookie.Name + "=" + cookie.Value}})
	p.send(conn, websocket.MessageText, `{"type":"resize","cols":97,"rows":31}`)
	p.send(conn, websocket.MessageText, `{"type":"tabSwitch","tabId":7,"url":"https://u:p@a.example/?token=hush&q=1","title":"A tab"}`)
	p.await("the terminal", func() bool { return p.terminal(m.SessionID) != nil })
	if info := p.terminal(m.SessionID); !info.Waiting || info.Cols != 97 || info.Rows != 31 {
		t.Errorf("%+v", info)
	}
	p.send(conn, websocket.MessageBinary, "\n")
	printed := p.expect(conn, "got:.")
	if !strings.Contains(printed, "size=31 97.") {
		t.Errorf("%q", printed)
	}
	pid := pidOf(t, printed)
	if opened := newPorts(t, p.s, -1, before); len(opened) > 0 {
		t.Errorf("a side panel's terminal opens %v", opened)
	}
	p.send(conn, websocket.MessageBinary, "there\n")
	p.expect(conn, `"path":"`+claude+`"`)
	p.await("the tab", func() bool {
		p.send(conn, websocket.MessageBinary, "tab\nnext\n")
		return strings.Contains(p.expect(conn, "got:next."), `{"tabId":7,"url":"https://a.example/?token=[REDACTED]\u0026q=1","title":"A tab"}`)
	})
	began := time.Now()
	must(t, conn.Close(websocket.StatusNormalClosure, ""))
	p.await("its end", func() bool { return !alive(pid) })
	if took := time.Since(began); took < 3*time.Second { // and so it was alive at 2 s
		t.Errorf("it was killed after %v", took)
	} else {
		t.Logf("gone after %v", took)
	}
	if lived := livedOn(t, claude); lived > 4500*time.Millisecond {
		t.Errorf("it lived on for %v", lived)
	} else {
		t.Logf("it lived on for %v", lived)
	}
	must(t, os.Remove(claude))
	if _, err := exec.LookPath("claude"); err == nil {
		return // the machine has one of its own
	}
	cookie = p.ask(http.MethodPost, "/pty-session", "", http.StatusOK, &m).Cookies()[1]
	conn = p.open(m, http.Header{"Cookie": {cookie.Name + "=" + cookie.Value}})
	p.send(conn, websocket.MessageBinary, "\n")
	p.expect(conn, "CLAUDE_NOT_FOUND")
	if _, _, err := conn.Read(p.ctx); websocket.CloseStatus(err) != 4404 {
		t.Errorf("%v", err)
	}
}

// The later panel with the real programs: its relay is killed, and it comes back to
// the same claude and screen.
func TestSidePanelComesBack(t *testing.T) {
	p, _ := newSide(t)
	var m, n sidePass
	p.ask(http.MethodPost, "/pty-session", "", http.StatusOK, &m)
	conn := p.open(m, http.Header{}, "gstack-pty."+m.AttachToken)
	p.send(conn, websocket.MessageText, `{"type":"resize","cols":80,"rows":24}`)
	p.send(conn, websocket.MessageText, `{"type":"start"}`)
	pid := pidOf(t, p.expect(conn, "size=24 80."))
	p.send(conn, websocket.MessageBinary, "before\n")
	p.expect(conn, "got:before.")
	must(t, syscall.Kill(p.s.Ready.Relays[0].PID, syscall.SIGKILL))
	if _, _, err := conn.Read(p.ctx); err == nil {
		t.Error("the socket goes on")
	}
	p.await("the relay", func() bool {
		status, _, err := Call(p.ctx, http.MethodGet, p.s.Ready.Relays[0].URL+"/health", "", nil)
		return err == nil && status == http.StatusOK
	})
	p.await("the sandbox", func() bool {
		grant, err := p.s.Ready.User("alice").Grant(p.ctx, p.s.Ready.SessionID)
		if err != nil {
			return false
		}
		status, body, err := Call(p.ctx, http.MethodPost, p.s.Ready.Relays[0].URL+"/pty-session/reattach", grant,
			map[string]any{"sessionId": m.SessionID}, "Origin", panelOrigin)
		return err == nil && status == http.StatusOK && json.Unmarshal(body, &n) == nil
	})
	if n.SessionID != m.SessionID {
		t.Errorf("%+v, then %+v", m, n)
	}
	conn = p.open(n, http.Header{}, "gstack-pty."+n.AttachToken)
	if back := p.expect(conn, "got:before."); !strings.Contains(back, `"type":"reattach-begin"`) {
		t.Errorf("%q", back)
	}
	p.send(conn, websocket.MessageBinary, "after\n")
	p.expect(conn, "got:after.")
	if !alive(pid) {
		t.Error("it is another claude")
	}
	p.send(conn, websocket.MessageBinary, "quit\n")
	for {
		if _, _, err := conn.Read(p.ctx); err != nil {
			if websocket.CloseStatus(err) != websocket.StatusNormalClosure {
				t.Error(err)
			}
			return
		}
	}
}
