package terminal

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/launch"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
	"github.com/fairlead/fairlead/sandbox-agent/internal/redact"
)

// A borrower has an account that other programs run under, too.
type borrower struct {
	account  account.Account
	other    *exec.Cmd // runs under it
	returned atomic.Int32
}

func newBorrower(t *testing.T, h *Host) *borrower {
	t.Helper()
	b := &borrower{}
	kept, err := h.Accounts().Keep(session)
	must(t, err)
	b.account = kept.Account
	b.other = process.Command([]string{"sleep", "1000"})
	b.other.Env = []string{"PATH=" + DefaultSearchPath}
	b.other.SysProcAttr.Credential = b.account.Credential()
	must(t, b.other.Start())
	t.Cleanup(func() {
		_ = b.other.Process.Kill() // it may have ended
		_ = b.other.Wait()         // as it was told to
		must(t, h.Accounts().Leave(kept))
	})
	return b
}

func (b *borrower) Return() { b.returned.Add(1) }

// lends lends the account for a script.
func (b *borrower) lends(script string, args ...string) launch.Lent {
	return launch.Lent{
		Account: b.account, Argv: append([]string{"sh", "-c", script, "sh"}, args...), Dir: "/",
		Env:  []string{"PATH=" + DefaultSearchPath, "HOME=" + b.account.Home, "OF=the conversation"},
		Mark: process.NewMark(b.account.UID, b.account.GID), Egress: protocol.EgressAdvisory,
		Owner: b,
	}
}

// TestLent: a terminal that runs under an account of others shows nothing of its
// arguments, takes all that it started with it, and leaves the account as it was.
func TestLent(t *testing.T) {
	for _, isolation := range []Isolation{IsolationUID, IsolationNone} {
		t.Run(string(isolation), func(t *testing.T) {
			h := realHost(t, isolation)
			b := newBorrower(t, h)
			pids := filepath.Join(b.account.Home, "pids")
			const native = "0a1b2c3d-native"
			lent := b.lends(`echo "$OF" >"$HOME/said"; echo "resume with $1"
				setsid sh -c 'echo $$ >"$HOME/pids"; echo ready; while :; do sleep 0.1; done' & read -r line
				echo "$1 and a secret of the session, again"; read -r line`, native)
			lent.Hidden = []string{native}
			info, err := h.CreateLent(t.Context(), session, "", op.PTYCreate{CreatorID: alice, CreatorName: "Alice", Conversation: "c-1"}, lent)
			must(t, err)
			term, err := h.Get(session, info.ID)
			must(t, err)
			u := &user{viewer: attach(t, term, nil), id: info.ID}
			u.mayControl(alice, "gr_1")
			u.Propose(protocol.LeaseProposal{ExpectRevision: u.opened.Lease.Revision, Next: protocol.LeaseNext{Holder: alice, GrantID: "gr_1"}})
			if said := u.expect("(?s)(.*)ready"); !strings.Contains(said, "resume with *****") || strings.Contains(said, native) {
				t.Errorf("it shows %q", said)
			}
			set, err := redact.Compile([]string{"a secret of the session"})
			must(t, err)
			h.SetSecrets(set, []string{"a secret of the session"})
			u.enter("read\n")
			if said := u.expect("(?s)(.*)again"); strings.Contains(said, native) || strings.Contains(said, "a secret of") || !strings.Contains(said, "******** and ****") {
				t.Errorf("after a change of secrets it shows %q", said)
			}
			for _, shown := range h.List(session) {
				if shown.Command != "sh" || shown.Conversation != "c-1" || shown.Egress != protocol.EgressAdvisory {
					t.Errorf("%+v", shown)
				}
			}
			if uid, ok := h.UID(session, info.ID); !ok || uid != b.account.UID {
				t.Errorf("uid %d, %t", uid, ok)
			}
			must(t, h.ApplyEnv(session, "", []byte("export X=1\n")))
			if _, err := h.StartAgent(t.Context(), session, info.ID, op.AgentStart{Name: "x", Command: "true"}); protocol.KindOf(err) != protocol.KindConflict {
				t.Errorf("another coding agent in front: %v", err)
			}
			for _, name := range []string{account.EnvFile, account.CredentialsFile} {
				if _, err := os.Lstat(filepath.Join(b.account.Home, account.Dir, name)); !os.IsNotExist(err) {
					t.Errorf("%s is in the home of others: %v", name, err)
				}
			}
			if _, err := os.Lstat(filepath.Join(b.account.Home, ".gitconfig")); !os.IsNotExist(err) {
				t.Errorf("git's settings are: %v", err)
			}
			pid, err := os.ReadFile(pids)
			must(t, err)
			if b.returned.Load() != 0 {
				t.Error("the account was returned while the terminal runs")
			}
			must(t, h.Close(session, info.ID))
			if b.returned.Load() != 1 {
				t.Errorf("the account was returned %d times", b.returned.Load())
			}
			n, err := strconv.Atoi(strings.TrimSpace(string(pid)))
			must(t, err)
			process.Each(func(s process.Stat) {
				if s.PID == n {
					t.Error("what the terminal has started runs")
				}
			})
			if err := b.other.Process.Signal(syscall.Signal(0)); err != nil {
				t.Errorf("what else runs under the account: %v", err)
			}
			if said, err := os.ReadFile(filepath.Join(b.account.Home, "said")); err != nil || string(said) != "the conversation\n" {
				t.Errorf("its home has %q: %v", said, err)
			}
		})
	}
}

// TestLentRefusals: an account for which there is no terminal is returned at once.
func TestLentRefusals(t *testing.T) {
	h := realHost(t, IsolationNone)
	b := newBorrower(t, h)
	info, err := h.Create(t.Context(), session, "", op.PTYCreate{})
	must(t, err)
	bad := b.lends("true")
	bad.Argv, bad.Dir = []string{"true"}, "/nowhere"
	for i, tt := range []struct {
		id     protocol.PTYID
		create op.PTYCreate
		lent   launch.Lent
		kind   protocol.Kind
	}{
		{"a b", op.PTYCreate{Conversation: "c"}, b.lends("true"), protocol.KindInvalid},
		{info.ID, op.PTYCreate{Conversation: "c"}, b.lends("true"), protocol.KindConflict},
		{"", op.PTYCreate{Conversation: "c", Record: true}, b.lends("true"), protocol.KindUnsupported},
		{"", op.PTYCreate{Conversation: "c"}, bad, protocol.KindInternal},
	} {
		if _, err := h.CreateLent(t.Context(), session, tt.id, tt.create, tt.lent); protocol.KindOf(err) != tt.kind {
			t.Errorf("%d: %v", i, err)
		}
		if n := b.returned.Load(); int(n) < i+1 {
			t.Errorf("%d: the account was returned %d times", i, n)
		}
	}
	if _, err := h.Create(t.Context(), session, "", op.PTYCreate{Conversation: "c"}); protocol.KindOf(err) != protocol.KindUnsupported {
		t.Errorf("without an account: %v", err)
	}
}
