package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/sandbox-agent/internal/passwd"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
)

// checkReach reports a directory that the users of terminals can't get to,
// which would otherwise be found by each terminal anew. It needs root.
func checkReach(dirs ...string) error {
	for _, dir := range dirs {
		if err := enter(dir); !errors.Is(err, fs.ErrPermission) {
			continue // also what can't be tried here is left to the terminals
		}
		return program.Hint(
			fmt.Errorf("%s: terminals run as users of their own, who can't get through %s", dir, barrier(dir)),
			"choose another directory, or let others pass: chmod o+x")
	}
	return nil
}

// enter starts a program in dir as the user of the first terminal, as a
// terminal does.
func enter(dir string) error {
	cmd := exec.Command("/bin/sh", "-c", ":")
	cmd.Dir, cmd.Env = dir, []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: terminal.DefaultFirstUID, Gid: terminal.DefaultGID},
	}
	return cmd.Run()
}

// barrier names the outermost directory on the way to dir that others may not
// pass, by its mode.
func barrier(dir string) string {
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	closed := dir
	for at := filepath.Dir(dir); ; at = filepath.Dir(at) {
		if info, err := os.Stat(at); err == nil && info.Mode()&0o001 == 0 {
			closed = at
		}
		if at == filepath.Dir(at) {
			return closed
		}
	}
}

// userList returns the system's list of users where terminals have users of their
// own that should be in it, else nil. Terminals run without, too.
func (c *Config) userList(isolation terminal.Isolation, log *slog.Logger) *passwd.File {
	if isolation != terminal.IsolationUID || !c.UserEntries {
		return nil
	}
	list, err := passwd.Open(passwd.Path)
	if err != nil {
		log.Warn("the users of terminals have no names", "err", err)
		return nil
	}
	return list
}

// isolation returns how far terminals can be kept apart.
func isolation() terminal.Isolation {
	if os.Geteuid() == 0 {
		return terminal.IsolationUID
	}
	return terminal.IsolationNone
}
