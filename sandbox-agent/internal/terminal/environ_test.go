package terminal

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/pty"
)

// A called is one call of TerminalStarts or TerminalEnded.
type called struct {
	what string
	pty  protocol.PTYID
	uid  int
}

// An envOwner stands for who owns the environment.
type envOwner struct {
	mu    sync.Mutex
	calls []called
	env   []string
	err   error
}

func (o *envOwner) note(what string, pty protocol.PTYID, uid int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, called{what, pty, uid})
}

// TerminalStarts implements [Features].
func (o *envOwner) TerminalStarts(start *feature.Start) error {
	o.note("start", start.PTY, start.UID)
	o.mu.Lock()
	defer o.mu.Unlock()
	start.Env = append(start.Env, o.env...)
	if p := start.Create; p.Egress != nil && *p.Egress {
		start.Egress = protocol.EgressAdvisory
	}
	return o.err
}

// FurnishHome implements [Features].
func (*envOwner) FurnishHome(feature.Home) error { return nil }

// TerminalEnded implements [Features].
func (o *envOwner) TerminalEnded(t feature.Terminal) { o.note("end", t.PTY, t.UID) }

func (o *envOwner) set(env ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.env = env
}

// owned has o own the environment of h's terminals.
func owned(h *Host) *envOwner {
	o := &envOwner{}
	h.config.Features = o
	return o
}

func TestEnviron(t *testing.T) {
	isolations(t, func(t *testing.T, h *Host) {
		o := owned(h)
		o.set("GREETING=hello", "PATH=/nowhere:"+DefaultSearchPath)
		yes := true
		u := sitDown(t, h, op.PTYCreate{Command: `echo "$GREETING at $PATH" up; cat`, Egress: &yes})
		u.expect("hello at /nowhere:/usr/local/sbin.* up")
		uid, ok := h.UID(session, u.id)
		if h.Isolation() == IsolationUID && uid < DefaultFirstUID || h.Isolation() == IsolationNone && uid != -1 || !ok {
			t.Errorf("uid %d %v", uid, ok)
		}
		if info := h.List(session)[0]; info.Egress != protocol.EgressAdvisory {
			t.Errorf("egress %q", info.Egress)
		}
		running := h.Running()
		if len(running) != 1 || running[0].ID != u.id || running[0].Session != session || running[0].UID != uid || running[0].PID < 2 {
			t.Errorf("running %+v", running)
		}
		o.set("GREETING=again")
		u.startAgent(h, op.AgentStart{Command: `echo "agent: $GREETING"; sleep 100`})
		u.expect("agent: again")
		if err := h.Close(session, u.id); err != nil {
			t.Fatal(err)
		}
		if _, ok := h.UID(session, u.id); ok || len(h.Running()) != 0 {
			t.Error("it is there after its end")
		}
		if want := []called{{"start", u.id, uid}, {"start", u.id, uid}, {"end", u.id, uid}}; !slices.Equal(o.calls, want) {
			t.Errorf("calls %+v", o.calls)
		}
	})
}

// TestEnvironFails: no terminal starts, and nothing ends; what doesn't start
// although it has an environment ends.
func TestEnvironFails(t *testing.T) {
	h := realHost(t, IsolationNone)
	o := owned(h)
	o.err = errors.New("no")
	if _, err := h.Create(t.Context(), session, "pty_1", op.PTYCreate{}); err == nil {
		t.Error("it started")
	}
	o.err = nil
	h.launch = func(pty.Launch) (pty.Device, pty.Child, error) { return nil, nil, errors.New("no PTY") }
	if _, err := h.Create(t.Context(), session, "pty_1", op.PTYCreate{}); err == nil {
		t.Error("it started")
	}
	if want := []called{{"start", "pty_1", -1}, {"start", "pty_1", -1}, {"end", "pty_1", -1}}; !slices.Equal(o.calls, want) {
		t.Errorf("calls %+v", o.calls)
	}
}

// TestApplyEnv: a running shell has the variables at its next prompt, without a
// trace on the terminal, and keeps the status of the command before.
func TestApplyEnv(t *testing.T) {
	isolations(t, func(t *testing.T, h *Host) {
		u := sitDown(t, h, op.PTYCreate{})
		u.expect(`m[$#] $`)
		u.enter("PROMPT_COMMAND=\"$PROMPT_COMMAND; seen=\\$((seen + 1))\"; set -xv\r")
		u.expect(`m[$#] $`)
		script := "export TOKEN='va''lue'\nunset HISTCONTROL\n"
		if err := h.ApplyEnv(session, "", []byte(script)); err != nil {
			t.Fatal(err)
		}
		u.enter("(exit 7)\r")
		u.expect(`(?s)exit 7.*m[$#] $`)
		u.enter("s=$?; set +xv; echo \"status $s ${#TOKEN} ${HISTCONTROL-unset} $seen\" done\r")
		got := u.expect(`(?s)^(.*status 7 5 unset [2-9] done)`)
		if strings.Contains(got, "value") || strings.Contains(got, "va''lue") {
			t.Errorf("shown: %q", got)
		}
		u.enter("bash -c 'echo child ${#TOKEN} .'; bash -i -c 'echo nested ${#TOKEN} .'\r")
		u.expect(`(?s)child 5 \..*nested 5 \.`)
		st, err := os.Stat(filepath.Join(h.config.Homes, string(u.id), account.Dir, account.EnvFile))
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := h.UID(session, u.id)
		if got := st.Sys().(*syscall.Stat_t).Uid; st.Mode() != 0o600 || uid >= 0 && int(got) != uid {
			t.Errorf("mode %v, uid %d", st.Mode(), got)
		}
		if err := h.ApplyEnv("ses_2", u.id, nil); err == nil || protocol.AsError(err).Kind != protocol.KindNotFound {
			t.Errorf("another session: %v", err)
		}
	})
}

// TestApplyEnvZsh: the same for zsh.
func TestApplyEnvZsh(t *testing.T) {
	zsh, err := exec.LookPath("zsh")
	if err != nil {
		t.Skip("no zsh here")
	}
	h := realHost(t, IsolationNone)
	h.config.Shell = zsh
	u := sitDown(t, h, op.PTYCreate{})
	u.expect("[%#] ")
	if err := h.ApplyEnv(session, u.id, []byte("export TOKEN='va''lue'\n")); err != nil {
		t.Fatal(err)
	}
	u.enter("(exit 7)\r")
	u.enter("echo status $? ${#TOKEN} done\r")
	u.expect("status 7 5 done")
}

// TestApplyEnvHostileHome: whatever stands in the way in a home, nothing outside
// is touched, and the script gets there or an error comes.
func TestApplyEnvHostileHome(t *testing.T) {
	isolations(t, func(t *testing.T, h *Host) {
		u := sitDown(t, h, unechoed("echo up; exec cat"))
		u.expect("up")
		outside := t.TempDir()
		victim := filepath.Join(outside, account.EnvFile)
		if err := os.WriteFile(victim, []byte("mine"), 0o644); err != nil {
			t.Fatal(err)
		}
		before, err := os.Stat(outside)
		if err != nil {
			t.Fatal(err)
		}
		home := filepath.Join(h.config.Homes, string(u.id))
		dir := filepath.Join(home, account.Dir)
		for name, prepare := range map[string]func() error{
			"nothing":        func() error { return nil },
			"link to folder": func() error { return os.Symlink(outside, dir) },
			"dangling link":  func() error { return os.Symlink("/nowhere", dir) },
			"file":           func() error { return os.WriteFile(dir, nil, 0o600) },
			"FIFO":           func() error { return syscall.Mkfifo(dir, 0o600) },
			"script is a link": func() error {
				return errors.Join(os.Mkdir(dir, 0o777), os.Symlink(victim, filepath.Join(dir, account.EnvFile)))
			},
			"script is a hard link": func() error {
				return errors.Join(os.Mkdir(dir, 0o777), os.Link(victim, filepath.Join(dir, account.EnvFile)))
			},
			"script is a FIFO": func() error {
				return errors.Join(os.Mkdir(dir, 0o777), syscall.Mkfifo(filepath.Join(dir, account.EnvFile), 0o600))
			},
		} {
			if err := errors.Join(os.RemoveAll(dir), prepare()); err != nil {
				t.Fatal(err)
			}
			if err := h.ApplyEnv(session, u.id, []byte("X=1\n")); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			got, err := os.ReadFile(filepath.Join(dir, account.EnvFile))
			if err != nil || !strings.HasSuffix(string(got), "\nX=1\n") {
				t.Errorf("%s: %q %v", name, got, err)
			}
			st, err := os.Lstat(dir)
			if err != nil || st.Mode() != os.ModeDir|0o700 {
				t.Errorf("%s: %v %v", name, st, err)
			}
			if text, err := os.ReadFile(victim); string(text) != "mine" || err != nil {
				t.Fatalf("%s: what is outside is %q, %v", name, text, err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 1 {
				t.Errorf("%s: left %v %v", name, entries, err)
			}
		}
		after, err := os.Stat(outside)
		if err != nil || after.Mode() != before.Mode() || after.Sys().(*syscall.Stat_t).Uid != before.Sys().(*syscall.Stat_t).Uid {
			t.Errorf("the folder outside was changed: %v %v", after, err)
		}
		if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, account.EnvFile, "x"), 0o700)); err != nil {
			t.Fatal(err)
		}
		if err := h.ApplyEnv(session, u.id, nil); err == nil || protocol.AsError(err).Kind != protocol.KindUnavailable {
			t.Errorf("a folder in the place of the script: %v", err)
		}
	})
}

// TestApplyEnvRace swaps the folder for a link all the time.
func TestApplyEnvRace(t *testing.T) {
	h := realHost(t, IsolationNone)
	u := sitDown(t, h, unechoed("echo up; exec cat"))
	u.expect("up")
	outside := t.TempDir()
	dir := filepath.Join(h.config.Homes, string(u.id), account.Dir)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			os.RemoveAll(dir)
			os.Symlink(outside, dir)
			os.Remove(dir)
			os.Mkdir(dir, 0o755)
		}
	}()
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		h.ApplyEnv(session, u.id, []byte("X=1\n")) // it may fail
	}
	close(stop)
	<-stopped
	if entries, err := os.ReadDir(outside); len(entries) > 0 || err != nil {
		t.Errorf("outside: %v %v", entries, err)
	}
}

// TestHostSecrets: of all terminals, those to come included.
func TestHostSecrets(t *testing.T) {
	h := realHost(t, IsolationNone)
	say := unechoed(fmt.Sprintf("echo up; read x; printf '%%s\\r\\n' '%s' end; exec cat", secretA))
	say.Command += " # " + secretA
	first := sitDown(t, h, say)
	first.expect("up")
	h.SetSecrets(compile(t, secretA), []string{secretA})
	second := sitDown(t, h, say)
	second.expect("up")
	for _, u := range []*user{first, second} {
		u.enter("\n")
		if got := u.expect("(?s)^(.*)end"); !strings.Contains(got, strings.Repeat("*", len(secretA))) {
			t.Errorf("got %q", got)
		}
	}
	for _, info := range h.List(session) {
		wantClean(t, "the list", []byte(info.Command), secretA)
	}
	h.SetSecrets(nil, nil)
	third := sitDown(t, h, say)
	third.expect("up")
	first.enter("plain " + secretA)
	first.expect(`plain sk-live`)
}
