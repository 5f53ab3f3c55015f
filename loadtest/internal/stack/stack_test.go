package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, name, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(text), mode))
	return path
}

const ready = `{"relays":[{"url":"http://127.0.0.1:1","tunnel":"127.0.0.1:2","admin_url":"http://127.0.0.1:3","pid":%d}],
"control_plane":{"url":"http://127.0.0.1:4","pid":5},"sandboxes":[{"id":"sb_1","pid":6,"state_dir":"/x"}],
"session_id":"ses_1","pty_id":"pty_1","users":{"bob":{"id":"usr_b","token":"b"},"alice":{"id":"usr_a","token":"a"}}}`

func TestLoad(t *testing.T) {
	target, err := Load(write(t, "ready.json", fmt.Sprintf(ready, 7), 0o600))
	must(t, err)
	if target.Owner().Token != "a" || target.Session != "ses_1" || target.Relays[0].PID != 7 || target.SandboxPID() != 6 {
		t.Errorf("%+v", target)
	}
	for text, want := range map[string]string{
		"{":  "unexpected end",
		"{}": "names no relay",
		`{"relays":[{"admin_url":"http://h"}],"session_id":"s","users":{"a":{}}}`:                "a relay has no url",
		`{"relays":[{"url":"ftp://h"}],"session_id":"s","users":{"a":{}}}`:                       "no http",
		`{"relays":[{"url":"http://h"}],"users":{"a":{}}}`:                                       "names no session_id",
		`{"relays":[{"url":"http://h"}],"session_id":"s"}`:                                       "names no users",
		`{"relays":[{"url":"http://h","admin_url":"x"}],"session_id":"s","users":{"a":{}}}`:      "no http",
		`{"relays":[{"url":"http://h"}],"session_id":"s"}` + strings.Repeat(" ", maxTargetBytes): "larger than",
	} {
		if _, err := Load(write(t, "x", text, 0o600)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestFromFlags(t *testing.T) {
	target, err := FromFlags(Flags{URL: "https://relay.example/", Token: "t", Session: "ses_1", AdminURLs: []string{"http://a", "http://b"}})
	must(t, err)
	if target.Relays[0].URL != "https://relay.example" || len(target.Relays) != 2 || target.Relays[1].AdminURL != "http://b" || target.Owner().Token != "t" {
		t.Errorf("%+v", target)
	}
	for _, f := range []Flags{{URL: "https://h", Session: "s"}, {URL: "https://h", Token: "t"}, {URL: "h", Token: "t", Session: "s"}} {
		if _, err := FromFlags(f); err == nil {
			t.Errorf("%+v was taken", f)
		}
	}
}

// local starts a stack whose devstack is a script that gets the name of the
// ready file as $READY.
func local(t *testing.T, script string, o Options) (*Local, error) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	o.Bin = filepath.Dir(write(t, "devstack", `#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = --ready-file ] && READY="$2"; [ "$1" = --state-dir ] && STATE="$2"; shift; done
`+script, 0o700))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return StartLocal(ctx, o)
}

func left(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(os.TempDir(), "*", "*"))
	must(t, err)
	return found
}

// A stack that has run leaves nothing behind.
func TestStartAndStop(t *testing.T) {
	l, err := local(t, `mkdir "$STATE/logs"; printf '`+fmt.Sprintf(ready, 7)+`' > "$READY.part"; trap exit TERM; mv "$READY.part" "$READY"; while :; do sleep 0.01; done`, Options{})
	must(t, err)
	if l.Target().Relays[0].PID != 7 || l.Err() != nil {
		t.Errorf("%+v %v", l.Target(), l.Err())
	}
	must(t, l.Stop())
	must(t, l.Stop())
	if found := left(t); len(found) > 0 {
		t.Errorf("left behind: %q", found)
	}
}

// After a failure the logs stay, and only they.
func TestKeep(t *testing.T) {
	l, err := local(t, `mkdir "$STATE/logs" "$STATE/relay-1"; echo text > "$STATE/logs/relay-1.log"; printf '`+fmt.Sprintf(ready, 7)+`' > "$READY.part"; trap exit TERM; mv "$READY.part" "$READY"; while :; do sleep 0.01; done`, Options{})
	must(t, err)
	l.Keep()
	must(t, l.Stop())
	var names []string
	for _, path := range left(t) {
		names = append(names, filepath.Base(path))
	}
	if got := strings.Join(names, " "); got != "devstack.log logs" {
		t.Errorf("kept: %s", got)
	}
}

// A stack that ends by itself says what its last error was.
func TestEndsEarly(t *testing.T) {
	_, err := local(t, `echo "devstack: error: no port"; echo "devstack: hint: try another"; exit 3`, Options{})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no port") {
		t.Error(err)
	}
	l, err := local(t, `printf '`+fmt.Sprintf(ready, 7)+`' > "$READY.part"; mv "$READY.part" "$READY"; until [ -e "$STATE/end" ]; do sleep 0.01; done; echo "devstack: error: gone"; exit 1`, Options{})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(l.Target().Dir, "end"), nil, 0o600))
	<-l.Done()
	if err := l.Err(); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Error(err)
	}
	must(t, l.Stop())
}

func TestNoDevstack(t *testing.T) {
	if _, err := StartLocal(t.Context(), Options{Bin: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "devstack is not in") {
		t.Error(err)
	}
}

// Kill kills the relay, and what it returns waits for another process.
func TestKill(t *testing.T) {
	l, err := local(t, `sleep 60 & printf '`+ready+`' $! > "$READY.part"; trap exit TERM; mv "$READY.part" "$READY"; wait; while :; do sleep 0.01; done`, Options{})
	must(t, err)
	defer l.Stop()
	victim := l.Target().Relays[0].PID
	_, back, err := l.Kill(0)
	must(t, err)
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for syscall.Kill(victim, 0) == nil {
		<-poll.C // the script reaps it
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := back(ctx); err == nil {
		t.Error("a relay came back that didn't")
	}
	if _, _, err := l.Kill(1); err == nil {
		t.Error("there is no second relay")
	}
}

// The sandboxes dial the shaper, for both carriers, and it dials the relay.
func TestShaper(t *testing.T) {
	s, err := startShaper("delay=1ms,loss=5%", 1)
	must(t, err)
	defer s.close()
	if s.RTT() != 2*time.Millisecond || s.addr == s.target {
		t.Errorf("%+v", s)
	}
	relay, err := net.Listen("tcp", s.target)
	must(t, err)
	defer relay.Close()
	conn, err := net.Dial("tcp", s.addr)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	behind, err := relay.Accept()
	must(t, err)
	defer behind.Close()
	_, err = behind.Write([]byte("x"))
	must(t, err)
	_, err = conn.Read(make([]byte, 1))
	must(t, err)
	if s.Describe() == "" {
		t.Error("nothing is told")
	}
	if _, err := startShaper("delay=x", 1); err == nil {
		t.Error("a profile that is none was taken")
	}
}
