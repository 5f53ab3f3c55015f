package account

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

// TestGitKnowsWho: git reads back the name that a person has, whatever is in it.
func TestGitKnowsWho(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git here")
	}
	for name, want := range map[string]string{
		"Alice": "Alice", "": "usr_1", "  \n ": "usr_1", `Al "the \ one" #1; x`: `Al "the \ one" #1; x`,
		"a\n[core]\n\tpager = evil": "a [core] pager = evil", "Ålice 世界": "Ålice 世界", "\xff\xfebob": "bob",
		strings.Repeat("é", 500): strings.Repeat("é", maxGitName),
	} {
		home := t.TempDir()
		must(t, Account{UID: -1, Home: home}.Introduce("usr_1", name))
		for key, want := range map[string]string{"user.name": want, "user.email": "usr_1@fairlead.invalid", "core.pager": ""} {
			got, _ := exec.Command(git, "config", "--file", filepath.Join(home, gitConfig), key).Output()
			if strings.TrimSuffix(string(got), "\n") != want {
				t.Errorf("%q: %s is %q, want %q", name, key, got, want)
			}
		}
	}
	home := t.TempDir()
	must(t, Account{UID: -1, Home: home}.Introduce("", ""))
	if _, err := os.Stat(filepath.Join(home, gitConfig)); !os.IsNotExist(err) {
		t.Errorf("settings for nobody: %v", err)
	}
}

// TestUIDsAreExclusive acquires accounts for two hosts of one machine, where a
// process that nobody knows of runs under the first uid.
func TestUIDsAreExclusive(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const first = 58000 // used by no other test
	stray := exec.Command("sleep", "1006")
	stray.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: first, Gid: first}}
	if err := stray.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stray.Process.Kill(); err != nil {
			t.Error(err)
		}
		stray.Wait() // reports the kill
	}()
	dir := t.TempDir()
	seen := make(map[int]bool)
	for n := range 2 {
		as := &Pool{Homes: dir, Own: true, FirstUID: first, GID: first}
		for i := range 2 {
			a, err := as.Acquire(protocol.PTYID(strconv.Itoa(2*n + i)))
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := as.Release(a); err != nil {
					t.Error(err)
				}
			}()
			if a.UID == first || seen[a.UID] {
				t.Errorf("uid %d is in use", a.UID)
			}
			seen[a.UID] = true
			st, err := os.Stat(a.Home)
			if err != nil || st.Mode().Perm() != 0o700 || int(st.Sys().(*syscall.Stat_t).Uid) != a.UID {
				t.Errorf("home %v, %v", st, err)
			}
		}
	}
}
