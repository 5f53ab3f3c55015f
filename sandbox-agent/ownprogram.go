package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
)

// ownProgram returns the path of this program for terminals, whose coding agents
// run it as mcp-bridge and from their hooks. Where terminals are other users who
// can't get to it, it is put below homes as well.
func ownProgram(homes string, isolated bool) (string, error) {
	self, err := os.Executable()
	if err != nil || !isolated || runnable(self) {
		return self, err
	}
	dir := filepath.Join(homes, ".fairlead")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(self))
	if err := place(self, path); err != nil {
		return "", fmt.Errorf("%s can't be run by terminals, nor put at %s: %w", self, path, err)
	}
	return path, nil
}

// runnable reports whether the user of the first terminal may run path.
func runnable(path string) bool {
	cmd := exec.Command("/bin/sh", "-c", `test -r "$1" && test -x "$1"`, "sh", path)
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: terminal.DefaultFirstUID, Gid: terminal.DefaultGID},
	}
	return cmd.Run() == nil
}

// place makes path the same program as from: what runs at path goes on.
func place(from, path string) (err error) {
	next := path + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(next)
		}
	}()
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Chmod(0o755), out.Close()); err != nil {
		return err
	}
	return os.Rename(next, path)
}
