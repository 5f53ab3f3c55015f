package recording

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

const secret = "sk-\"live\"/4242 +x"

func secrets(t *testing.T) *redact.Set {
	t.Helper()
	set, err := redact.Compile([]string{secret})
	must(t, err)
	return set
}

// wantText checks the output in a recording.
func wantText(t *testing.T, s *Store, id, want string) {
	t.Helper()
	_, events, _ := read(t, s, id)
	var got strings.Builder
	for _, e := range events {
		if e.code == "o" {
			got.WriteString(e.data)
		}
	}
	if got.String() != want {
		t.Errorf("%s: %q, want %q", id, got.String(), want)
	}
}

// TestMask: a secret that is spread over events, with sizes in between, is
// masked, and all else stays as it was.
func TestMask(t *testing.T) {
	s := open(t, Options{})
	r, other := begin(t, s), begin(t, s)
	must(t, other.Output(start, []byte("nothing "+secret[:8])))
	must(t, other.End(after(time.Second), nil))
	for i := range len(secret) {
		must(t, r.Output(after(time.Duration(i)*time.Second), []byte("\x1b[32m"+secret[i:i+1])))
		if i == 5 {
			must(t, r.Resize(after(5*time.Second), 100, 30))
		}
	}
	must(t, r.Output(after(time.Minute), []byte(" end "+secret[:9])))
	must(t, r.End(after(time.Hour), nil))
	before, err := os.Stat(s.path(session, other.ID(), castSuffix))
	must(t, err)

	s.SetSecrets(secrets(t))
	must(t, s.Mask(t.Context()))
	h, events, info := read(t, s, r.ID())
	var text strings.Builder
	resized := 0
	for i, e := range events {
		if e.code == "r" {
			resized++
		} else {
			text.WriteString(e.data)
		}
		if i > 0 && e.at < events[i-1].at {
			t.Errorf("event %d goes back in time", i)
		}
	}
	plain := strings.ReplaceAll(text.String(), "\x1b[32m", "")
	if resized != 1 || h.Width != 80 || info.EndedAt != after(time.Hour).UnixMilli() {
		t.Errorf("%+v %+v, %d sizes", h, info, resized)
	}
	if want := strings.Repeat("*", len(secret)); !strings.HasPrefix(plain, want+" end ") && !strings.HasPrefix(plain, secret[:3]) || strings.Contains(plain, secret[5:9]) {
		t.Errorf("got %q", plain)
	}
	now, err := os.Stat(s.path(session, other.ID(), castSuffix))
	must(t, err)
	if !os.SameFile(before, now) {
		t.Error("one without a secret was written again")
	}
	entries, err := os.ReadDir(s.path(session, "", ""))
	must(t, err)
	if len(entries) != 4 {
		t.Errorf("left %v", entries)
	}
}

// TestMaskHeader: a secret in the command is masked wherever the command is.
func TestMaskHeader(t *testing.T) {
	s := open(t, Options{})
	r, err := s.Create(Params{Session: session, PTY: "pty_1", Command: "login " + secret + " now", Cols: 80, Rows: 24, Start: start})
	must(t, err)
	must(t, r.End(start, nil))
	s.SetSecrets(secrets(t))
	h, _, info := read(t, s, r.ID())
	for _, command := range []string{h.Title, info.Command} {
		if strings.Contains(command, "live") || !strings.HasPrefix(command, "login ") || !strings.HasSuffix(command, " now") {
			t.Errorf("command %q", command)
		}
	}
}

// TestMaskBeforeRead: nobody reads a recording that wasn't masked, whatever the
// disk does.
func TestMaskBeforeRead(t *testing.T) {
	s := open(t, Options{})
	r := begin(t, s)
	must(t, r.Output(start, []byte("a "+secret+" z")))
	must(t, r.End(start, nil))
	aside := s.path(session, r.ID(), maskSuffix)
	must(t, os.MkdirAll(aside+"/in the way", 0o700))
	s.SetSecrets(secrets(t))
	if err := s.Mask(t.Context()); err == nil {
		t.Error("it was masked")
	}
	if _, err := s.Read(session, r.ID()); err == nil || protocol.AsError(err).Kind != protocol.KindUnavailable || strings.Contains(err.Error(), "live") {
		t.Errorf("read: %v", err)
	}
	must(t, os.RemoveAll(aside))
	wantText(t, s, r.ID(), "a "+strings.Repeat("*", len(secret))+" z")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Mask(ctx); err != context.Canceled {
		t.Errorf("after the end of ctx: %v", err)
	}
}

// TestRunningIsLookedThrough: a running one is read again when that has been
// done, and starts anew when a secret is in it.
func TestRunningIsLookedThrough(t *testing.T) {
	s := open(t, Options{})
	set := secrets(t)
	clean, dirty := begin(t, s), begin(t, s)
	must(t, clean.Output(start, []byte("nothing")))
	must(t, dirty.Output(start, []byte(secret+"\xe2\x82")))
	s.SetSecrets(set)
	for _, r := range []*Recording{clean, dirty} {
		if _, err := s.Read(session, r.ID()); err == nil || protocol.AsError(err).Kind != protocol.KindUnavailable {
			t.Errorf("read: %v", err)
		}
	}
	if found, err := clean.Check(set); found || err != nil {
		t.Fatal(found, err)
	}
	clean.Clear()
	wantText(t, s, clean.ID(), "nothing")
	if found, err := dirty.Check(set); !found || err != nil {
		t.Fatal(found, err)
	}
	must(t, dirty.Restart(100, 30, "top"))
	must(t, dirty.Output(after(time.Minute), []byte("screen")))
	must(t, dirty.Flush())
	wantText(t, s, dirty.ID(), "screen")
	h, events, info := read(t, s, dirty.ID())
	if h.Width != 100 || info.Cols != 100 || info.Rows != 30 || info.StartedAt != start.UnixMilli() || events[0].at != 60 {
		t.Errorf("%+v %+v %+v", h, events, info)
	}
	dirty.Suspect()
	if _, err := s.Read(session, dirty.ID()); err == nil {
		t.Error("a suspect one was read")
	}
	must(t, clean.End(after(time.Hour), nil))
	must(t, dirty.End(after(time.Hour), nil))
	if late := begin(t, s); !late.readable(1) {
		t.Error("one that begins later has to be looked through")
	} else {
		must(t, late.End(start, nil))
	}
}

// TestLeftAside: what an earlier process was about to put in a recording's place
// is removed.
func TestLeftAside(t *testing.T) {
	s := open(t, Options{})
	r := begin(t, s)
	must(t, r.End(start, nil))
	aside := s.path(session, r.ID(), maskSuffix)
	must(t, os.WriteFile(aside, []byte("half"), 0o600))
	s = open(t, Options{Dir: s.dir})
	if _, err := os.Stat(aside); !os.IsNotExist(err) {
		t.Error("it is there:", err)
	}
	read(t, s, r.ID())
}
