package terminal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/account"
	"github.com/fairlead/fairlead/sandbox-agent/internal/passwd"
)

// TestNames: a terminal's user is in the list while it runs; what an earlier life
// has left goes, and what another agent's terminals need stays.
func TestNames(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	path := filepath.Join(t.TempDir(), "passwd")
	const others = "root:x:0:0:root:/root:/bin/bash\n"
	must(t, os.WriteFile(path, []byte(others), 0o644))
	list, err := passwd.Open(path)
	must(t, err)
	must(t, os.MkdirAll(account.Locks, 0o700))
	var used int
	lock := func() (lock *os.File) {
		for uid := DefaultFirstUID + account.Range - 1; ; uid-- { // where nobody begins
			if lock, err = account.LockUID(uid); err != nil || lock != nil {
				used = uid
				return lock
			}
		}
	}()
	must(t, err)
	defer lock.Close()
	unused := used - 1
	for _, uid := range []int{used, unused} {
		must(t, list.Set(passwd.Entry{UID: uid, GID: DefaultGID, Home: "/old", Shell: "/bin/sh"}))
	}
	h := realHost(t, IsolationUID)
	h.accounts.Users = list
	h.accounts.ClearLeftovers(h.log)
	names := func() string {
		text, err := os.ReadFile(path)
		must(t, err)
		return string(text)
	}
	kept := passwd.Entry{UID: used}.Name()
	if got := names(); !strings.HasPrefix(got, others) || !strings.Contains(got, kept+":") || strings.Contains(got, passwd.Entry{UID: unused}.Name()) {
		t.Errorf("after the start: %q", got)
	}
	info, err := h.Create(t.Context(), session, "", op.PTYCreate{})
	must(t, err)
	uid, ok := h.UID(session, info.ID)
	if want := ":" + filepath.Join(h.config.Homes, string(info.ID)) + ":/bin/bash\n"; !ok || !strings.Contains(names(), passwd.Entry{UID: uid}.Name()+":*:") || !strings.Contains(names(), want) {
		t.Errorf("of uid %d: %q", uid, names())
	}
	must(t, h.Close(session, info.ID))
	if got := names(); strings.Contains(got, passwd.Entry{UID: uid}.Name()) {
		t.Errorf("after the end: %q", got)
	}
}
