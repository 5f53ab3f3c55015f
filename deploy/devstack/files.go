package devstack

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// filesDir holds the workspaces and homes of all stacks: terminals run under
	// users of their own and must be able to reach them, but not a state directory.
	filesDir = "/var/tmp"
	// ownerName is the file, beside a temporary stack's workspaces and homes, that
	// names its state directory.
	ownerName = ".devstack"
	lockName  = "lock"
)

// filesPrefix begins the name of every directory that sandboxFiles makes.
func filesPrefix() string { return fmt.Sprintf("fairlead-%d-", os.Getuid()) }

// sandboxFiles returns the directory, outside the state directory, that holds
// the workspaces and homes of the sandbox whose state is in stateDir.
func sandboxFiles(stateDir string) (string, error) {
	sum := sha256.Sum256([]byte(stateDir))
	dir := filepath.Join(filesDir, filesPrefix()+hex.EncodeToString(sum[:6]))
	// The mode is what PTY users need to pass through, whatever our umask.
	if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if !ours(info) {
		return "", fmt.Errorf("%s is not a directory of ours", dir)
	}
	return dir, os.Chmod(dir, 0o711)
}

// ours reports whether info is of a directory that belongs to our user. Others
// can make any name in filesDir.
func ours(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.IsDir() && int(stat.Uid) == os.Getuid()
}

// makeFiles makes the directory of a sandbox's workspaces and homes. Those of a
// temporary stack go at its end.
func (s *Stack) makeFiles(sandboxDir string) (string, error) {
	dir, err := sandboxFiles(sandboxDir)
	if err != nil {
		return "", err
	}
	owner := filepath.Join(dir, ownerName)
	if !s.cfg.Temporary {
		if err := os.Remove(owner); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		return dir, nil
	}
	s.files = append(s.files, dir)
	return dir, os.WriteFile(owner, []byte(s.cfg.StateDir+"\n"), 0o600)
}

// removeFiles removes the workspaces and homes of a temporary stack, all of whose
// programs have ended.
func (s *Stack) removeFiles() {
	for _, dir := range s.files {
		if err := os.RemoveAll(dir); err != nil {
			s.say("workspace not removed: %v", err)
		}
	}
}

// sweep removes the workspaces and homes of temporary stacks that were killed.
func sweep() error {
	dirs, err := filepath.Glob(filepath.Join(filesDir, filesPrefix()+"*"))
	for _, dir := range dirs {
		info, statErr := os.Lstat(dir)
		if statErr != nil || !ours(info) {
			continue
		}
		if state, read := os.ReadFile(filepath.Join(dir, ownerName)); read == nil && !running(string(bytes.TrimSuffix(state, []byte("\n")))) {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}
	return err
}

// running reports whether a devstack uses the state directory.
func running(stateDir string) bool {
	lock, err := os.Open(filepath.Join(stateDir, lockName))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer lock.Close()
	// A shared lock, and only for a moment: it gets in no other sweeper's way.
	return syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}
