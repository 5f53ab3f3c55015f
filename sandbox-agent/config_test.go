package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/authority"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
)

// TestStartErrors: an agent that can't start says which file or flag is at
// fault.
func TestStartErrors(t *testing.T) {
	for _, tt := range []struct {
		what  string
		spoil func(*world)
		says  []string
	}{
		{"no state directory", func(w *world) { w.cfg.StateDir = "" }, []string{"--state-dir"}},
		{"no workspace", func(w *world) { w.cfg.Workspace = "" }, []string{"--workspace"}},
		{"no homes", func(w *world) { w.cfg.Homes = "" }, []string{"--homes"}},
		{"bad relay", func(w *world) { w.cfg.Relays = []string{"relay"} }, []string{"--relays", `"relay"`}},
		{"unknown carrier", func(w *world) { w.cfg.Carrier = "pigeon" }, []string{"--carrier", "pigeon"}},
		{"no enrolment", func(w *world) { os.Remove(filepath.Join(w.cfg.StateDir, authority.EnrolmentFile)) }, []string{"enrolment", authority.EnrolmentFile}},
		{"named enrolment", func(w *world) { w.cfg.Enrolment = "/none/such" }, []string{"enrolment", "/none/such"}},
		{"garbled enrolment", func(w *world) { w.write(authority.EnrolmentFile, "{") }, []string{authority.EnrolmentFile}},
		{"no sandbox id", func(w *world) { w.enrolWith(func(e *protocol.Enrolment) { e.SandboxID = "a b" }) }, []string{authority.EnrolmentFile, "sandbox_id"}},
		{"unreadable authority", func(w *world) {
			w.enrolWith(func(e *protocol.Enrolment) {
				e.RelayCAPEM = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"
			})
		}, []string{authority.EnrolmentFile, "relay_ca_pem"}},
		{"unreadable authority of the control plane", func(w *world) {
			w.enrolWith(func(e *protocol.Enrolment) {
				e.ControlPlane.CAPEM = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n"
			})
		}, []string{authority.EnrolmentFile, "control_plane.ca_pem"}},
		{"garbled keys", func(w *world) { w.enrolWith(func(e *protocol.Enrolment) { e.JWKS = []byte(`{"keys":7}`) }) }, []string{authority.EnrolmentFile, "jwks"}},
		{"garbled device key", func(w *world) { w.write("device-key.json", "{}") }, []string{"device-key.json"}},
		{"ledger is a file", func(w *world) { w.write("ledger", "") }, []string{"ledger"}},
		{"recordings is a file", func(w *world) { w.write(recordingsDir, "") }, []string{recordingsDir}},
		{"spill directory is a file", func(w *world) {
			w.write("spill", "")
			w.cfg.SpillDir = filepath.Join(w.cfg.StateDir, "spill")
		}, []string{"--spill-dir"}},
		{"relative folder of programs", func(w *world) { w.cfg.ProgramPath = []string{"bin"} }, []string{"--program-path", "bin"}},
		{"two folders in one", func(w *world) { w.cfg.ProgramPath = []string{"/a:/b"} }, []string{"--program-path"}},
		{"negative limit of a terminal", func(w *world) { w.cfg.SpillDir, w.cfg.SpillPerTerminal = "spill", -1 }, []string{"--spill-per-terminal"}},
		{"negative limit of all", func(w *world) { w.cfg.SpillDir, w.cfg.SpillTotal = "spill", -1 }, []string{"--spill-total"}},
		{"workspace is a file", func(w *world) { must(w.t, os.WriteFile(w.cfg.Workspace, nil, 0o600)) }, []string{"workspace"}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			w := newWorld(t)
			tt.spoil(w)
			a, err := New(w.cfg)
			if err == nil || a != nil {
				t.Fatalf("New: %v, %v", a, err)
			}
			for _, word := range tt.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q doesn't say %q", err, word)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

// write puts text into a file of the state directory.
func (w *world) write(name, text string) {
	w.t.Helper()
	must(w.t, os.WriteFile(filepath.Join(w.cfg.StateDir, name), []byte(text), 0o600))
}

func TestKeysMaxAgeMustMakeSense(t *testing.T) {
	w := newWorld(t)
	w.cfg.KeysMaxAge = -time.Second
	if _, err := New(w.cfg); err == nil || !strings.Contains(err.Error(), "--keys-max-age") {
		t.Errorf("%v", err)
	}
}

// TestRelativePaths: what the agent is told relative to where it starts is the
// same place for terminals, which start elsewhere.
func TestRelativePaths(t *testing.T) {
	t.Chdir(t.TempDir())
	cfg := Config{StateDir: "state", Workspace: "./workspace", Homes: "homes"}
	must(t, cfg.check())
	for _, path := range []string{cfg.StateDir, cfg.Workspace, cfg.Homes, cfg.Enrolment} {
		if !filepath.IsAbs(path) {
			t.Errorf("%s is relative", path)
		}
	}
}

// TestOutOfReach: a workspace that terminals' users can't get to is one error
// at the start, which names the directory in the way.
func TestOutOfReach(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	w := newWorld(t)
	closed := filepath.Join(t.TempDir(), "closed")
	must(t, os.Mkdir(closed, 0o700))
	must(t, os.Chmod(filepath.Dir(closed), 0o755))
	must(t, os.Chmod(filepath.Dir(filepath.Dir(closed)), 0o755))
	w.cfg.Workspace = filepath.Join(closed, "deep", "workspace")
	_, err := New(w.cfg)
	if err == nil || !strings.Contains(err.Error(), w.cfg.Workspace) || !strings.HasSuffix(err.Error(), "through "+closed) {
		t.Errorf("New: %v", err)
	}
	must(t, os.Chmod(closed, 0o711))
	w.start()
}

// TestSearchPath: an operator's folders come before the system's, the agent's own
// last.
func TestSearchPath(t *testing.T) {
	c := Config{ProgramPath: []string{"/a", "/b"}}
	if got, want := c.searchPath("/own"), "/a:/b:"+terminal.DefaultSearchPath+":/own"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := (&Config{}).searchPath("/own"); got != terminal.DefaultSearchPath+":/own" {
		t.Error(got)
	}
}
