package terminal

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/display"
	"github.com/fairlead/fairlead/sandbox-agent/internal/recording"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
	"github.com/fairlead/fairlead/sandbox-agent/internal/screen"
	"github.com/fairlead/fairlead/sandbox-agent/internal/spill"
)

const (
	secretA = "sk-live/4242+abcDEF?xyz&q"
	secretB = "correct horse \"battery\" staple"
)

func compile(t testing.TB, secrets ...string) *redact.Set {
	t.Helper()
	set, err := redact.Compile(secrets)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// encodings returns the spellings of a secret that tools print.
func encodings(secret string) []string {
	quoted, _ := json.Marshal(secret)
	all := []string{secret, url.QueryEscape(secret), url.PathEscape(secret), hex.EncodeToString([]byte(secret)),
		strings.ToUpper(hex.EncodeToString([]byte(secret))), string(quoted)}
	for phase := range 3 {
		all = append(all, base64.StdEncoding.EncodeToString([]byte("xyz"[:phase]+secret)),
			base64.URLEncoding.EncodeToString([]byte("xyz"[:phase]+secret)))
	}
	return all
}

var (
	sequences = regexp.MustCompile(`\x1b\[[0-9;?:<=>]*[ -/]*[@-~]|\x1b[@-Z\\^_c]|[\r\n]`)
)

// wantClean checks that nothing of a secret is in what somebody got, however
// spelled, but for at most its leading bytes.
func wantClean(t *testing.T, what string, got []byte, secrets ...string) {
	t.Helper()
	plain := sequences.ReplaceAllString(string(got), "")
	for _, secret := range secrets {
		for _, form := range encodings(secret) {
			form = form[2 : len(form)-2] // of base64 the ends belong to others as well
			for i := 0; i+8 <= len(form); i++ {
				for _, text := range []string{plain, string(got)} {
					if at := strings.Index(text, form[i:i+8]); at >= 0 {
						t.Fatalf("%s shows a part of a secret, %q: %q", what, form[i:i+8], text[max(0, at-60):min(len(text), at+60)])
					}
				}
			}
		}
	}
}

// A maskRig is a terminal over fakes that is recorded and spilled, with a viewer
// who keeps all they get.
type maskRig struct {
	*rig
	*viewer
	t          *testing.T
	recordings *recording.Store
	spillDir   string
	seen       bytes.Buffer // all output and keyframes
	resets     int
	held       []bool
}

func withMaskRig(t *testing.T, cols, rows int, set *redact.Set, f func(*testing.T, *maskRig)) {
	t.Helper()
	m := &maskRig{spillDir: t.TempDir(), t: t}
	var err error
	if m.recordings, err = recording.Open(recording.Options{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	store, err := spill.Open(spill.Options{Dir: m.spillDir, PerTerminal: 16 << 20, Total: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	synctest.Test(t, func(t *testing.T) {
		m.t = t
		m.rig = &rig{dev: newFakeDevice(), proc: newFakeProcess()}
		info := protocol.PTYInfo{ID: "pty_1", CreatorID: alice, Cols: cols, Rows: rows}
		tape, err := m.recordings.Create(tapeParams(session, info, time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		at := site{secrets: set, spill: store, tape: tape}
		m.rig.Terminal = newTerminal(session, info, newProgram(m.dev, m.proc), at, slog.New(slog.DiscardHandler))
		go m.keep(func() {})
		m.viewer = m.rig.attach(t, nil)
		t.Cleanup(func() {
			m.kill()
			<-m.life.gone
		})
		f(t, m)
	})
}

// drain takes in what there is.
func (m *maskRig) drain() {
	m.t.Helper()
	synctest.Wait()
	for {
		next, err := m.Poll()
		if err != nil && err != io.EOF {
			m.t.Fatal(err)
		}
		switch got := next.(type) {
		case nil:
			return
		case protocol.Data:
			m.seen.Write(got.Bytes)
		case protocol.Keyframe:
			m.seen.Write(got.Bytes)
		case protocol.Reset:
			m.resets++
			m.seen.Reset() // as a relay does
			m.WantKeyframe(true)
		case protocol.Held:
			m.held = append(m.held, got.Held)
		}
	}
}

func (m *maskRig) print(s string) {
	m.rig.print(s)
	m.drain()
}

// slowly has the program print s byte by byte.
func (m *maskRig) slowly(s string) {
	for i := range len(s) {
		m.print(s[i : i+1])
	}
}

// late sets secrets, as a host does.
func (m *maskRig) late(set *redact.Set, partial ...*redact.Set) {
	sets := append([]*redact.Set{set}, partial...)
	m.setSecrets(set, partial...)
	m.recordings.SetSecrets(sets...)
	m.search(sets...)
	m.drain()
}

// keyframeNow returns a keyframe with history of the present screen.
func (m *maskRig) keyframeNow() []byte {
	m.view.mu.Lock()
	defer m.view.mu.Unlock()
	return m.view.display.Draw(display.WishHistory)
}

// spilledNow returns all that is in the spill's folder.
func (m *maskRig) spilledNow() (all []byte) {
	m.t.Helper()
	err := filepath.WalkDir(m.spillDir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		p, err := os.ReadFile(path)
		all = append(all, p...)
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return all
}

// recordedNow returns the output in the recording that runs.
func (m *maskRig) recordedNow() []byte {
	m.t.Helper()
	id := m.Info().Recording
	time.Sleep(2 * flushEvery)
	synctest.Wait()
	c, err := m.recordings.Read(session, id)
	if err != nil {
		m.t.Fatal(err)
	}
	defer c.Close()
	return decoded(m.t, c)
}

// decoded returns the output in a recording.
func decoded(t *testing.T, r io.Reader) (all []byte) {
	t.Helper()
	lines := json.NewDecoder(r)
	var header map[string]any
	if err := lines.Decode(&header); err != nil {
		t.Fatal(err)
	}
	for lines.More() {
		var at float64
		var code, data string
		if err := lines.Decode(&[]any{&at, &code, &data}); err != nil {
			t.Fatal(err)
		}
		if code == "o" {
			all = append(all, data...)
		}
	}
	return all
}

// wantAllClean checks everything that leaves the terminal or is kept of it.
func (m *maskRig) wantAllClean(secrets ...string) {
	m.t.Helper()
	wantClean(m.t, "a viewer", m.seen.Bytes(), secrets...)
	wantClean(m.t, "a keyframe", m.keyframeNow(), secrets...)
	wantClean(m.t, "the spill", m.spilledNow(), secrets...)
	wantClean(m.t, "the recording", m.recordedNow(), secrets...)
	m.wantScreenOfLog()
}

// wantScreenOfLog checks that the screen is that of who has read the log since
// the epoch began.
func (m *maskRig) wantScreenOfLog() {
	m.t.Helper()
	m.view.mu.Lock()
	defer m.view.mu.Unlock()
	if _, opened := m.transcript.Open(&protocol.Position{Epoch: m.transcript.Epoch()}); opened.Gap { // it has dropped its beginning
		return
	}
	cols, rows := m.transcript.Size()
	s := screen.New(cols, rows)
	s.Write(nil, nil, m.transcript.Tail(1<<30))
	if got, want := string(m.view.display.Fork().AppendKeyframe(nil, 1000)), string(s.AppendKeyframe(nil, 1000)); got != want {
		m.t.Errorf("the screen is not that of the log: keyframe\n%q, want\n%q", got, want)
	}
}

// coloured returns s with a colour before each byte.
func coloured(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "\x1b[3%dm%c", i%8, s[i])
	}
	return b.String() + "\x1b[m"
}

// pass lets time pass, which is the bubble's.
func (m *maskRig) pass(d time.Duration) { time.Sleep(d) }
