package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// download makes a request and returns its answer whole.
func download(t *testing.T, req *http.Request) (status int, position string, body []byte) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, resp.Header.Get("Fairlead-Position"), body
}

// A cast is an asciicast v2 file.
type cast struct {
	Version int `json:"version"`
	Width   int `json:"width"`
	Height  int `json:"height"`
	output  []byte
	events  int
	lasts   float64 // seconds
}

// parseCast reads an asciicast v2 file.
func parseCast(t *testing.T, data []byte) cast {
	t.Helper()
	var c cast
	for i, line := range bytes.Split(bytes.TrimRight(data, "\n"), []byte("\n")) {
		if i == 0 {
			must(t, json.Unmarshal(line, &c))
			continue
		}
		var event []any
		must(t, json.Unmarshal(line, &event))
		if len(event) != 3 {
			t.Fatalf("event %q", line)
		}
		at, ok := event[0].(float64)
		kind, ok2 := event[1].(string)
		text, ok3 := event[2].(string)
		if !ok || !ok2 || !ok3 || at < c.lasts {
			t.Fatalf("event %.100q after one at %v", line, c.lasts)
		}
		c.lasts = at
		c.events++
		if kind == "o" {
			c.output = append(c.output, text...)
		}
	}
	return c
}

// TestRecording: a recording that is started and stopped by REST has every
// byte that was printed meanwhile, though the relay dies in the middle.
func TestRecording(t *testing.T) {
	ctx := within(t)
	s := own(t)
	p := startPrinter(t, s, 11)
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	session := alice.Base + "/sessions/" + string(s.Ready.SessionID)
	v := p.watch(ctx, s, "alice", Viewing{})
	must(t, v.AwaitLive(ctx))

	var started protocol.OpResult
	must(t, call(ctx, http.StatusOK, &started, http.MethodPost, session+"/ptys/"+string(p.id)+"/recording", grant, nil))
	must(t, v.Await(ctx, "recording", func() bool { return v.recording != "" }))
	p.burst(300_000)
	p.rate(500_000)
	must(t, v.AwaitOffset(ctx, 400_000))
	pid := s.Ready.Relays[0].PID
	must(t, syscall.Kill(pid, syscall.SIGKILL))
	awaitRelay(ctx, t, s, 0, pid)
	must(t, v.Await(ctx, "a new socket", func() bool { return len(v.connections) > 1 && v.live }))
	p.burst(300_000)
	end := p.finish()
	must(t, v.AwaitOffset(ctx, end))
	must(t, call(ctx, http.StatusOK, nil, http.MethodDelete, session+"/ptys/"+string(p.id)+"/recording", grant, nil))
	must(t, v.Await(ctx, "the recording's end", func() bool { return v.recording == "" }))
	p.burst(1000) // not recorded
	p.stop()

	var list protocol.RecordingList
	must(t, call(ctx, http.StatusOK, &list, http.MethodGet, session+"/recordings", grant, nil))
	if len(list.Recordings) != 1 || list.Recordings[0].PTYID != p.id || list.Recordings[0].EndedAt == 0 {
		t.Fatalf("recordings %+v", list.Recordings)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, session+"/recordings/"+list.Recordings[0].ID, nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+grant)
	status, _, file := download(t, req)
	if status != http.StatusOK || int64(len(file)) != list.Recordings[0].Bytes {
		t.Fatalf("status %d, %d bytes, %+v", status, len(file), list.Recordings[0])
	}
	c := parseCast(t, file)
	want := p.Range(0, end)
	if c.Version != 2 || c.Width != 80 || c.Height != 24 || c.lasts <= 0 || c.lasts > time.Minute.Seconds() {
		t.Errorf("recording %+v", cast{c.Version, c.Width, c.Height, nil, c.events, c.lasts})
	}
	if !bytes.Equal(c.output, want) {
		at := 0
		for at < min(len(c.output), len(want)) && c.output[at] == want[at] {
			at++
		}
		t.Errorf("%d bytes recorded, %d printed; they differ from %d on: %.60q, want %.60q", len(c.output), len(want), at, c.output[at:], want[at:])
	}
	t.Logf("%d bytes in %d events, %d bytes of file", len(c.output), c.events, len(file))
	catRecording(t, file, want)
}

// catRecording has asciinema, where there is one, print a recording.
func catRecording(t *testing.T, file, want []byte) {
	t.Helper()
	asciinema, err := exec.LookPath("asciinema")
	if err != nil {
		t.Log("asciinema is not installed")
		return
	}
	path := filepath.Join(t.TempDir(), "terminal.cast")
	must(t, os.WriteFile(path, file, 0o600))
	out, err := exec.CommandContext(within(t), asciinema, "cat", path).Output()
	must(t, err)
	if !bytes.Equal(out, want) {
		t.Errorf("asciinema cat prints %d bytes, %d were recorded", len(out), len(want))
	}
}

// TestRecordingNeedsItsCapability: bob controls terminals but records none.
func TestRecordingNeedsItsCapability(t *testing.T) {
	ctx := within(t)
	s := shared(t)
	id := newPTY(t, s, "cat")
	bob := s.Ready.User("bob")
	grant, err := bob.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		status, body, err := Call(ctx, method, fmt.Sprintf("%s/sessions/%s/ptys/%s/recording", bob.Base, s.Ready.SessionID, id), grant, nil)
		must(t, err)
		if status != http.StatusForbidden {
			t.Errorf("%s: status %d: %s", method, status, body)
		}
	}
	// Exact viewing needs it, too; the socket is refused or plain, never exact.
	v := bob.Watch(ctx, Viewing{Session: s.Ready.SessionID, PTY: id, Exact: true, Once: true})
	t.Cleanup(func() { v.Close() })
	if err := v.AwaitLive(ctx); err == nil {
		t.Error("bob views in mode exact")
	}
}
