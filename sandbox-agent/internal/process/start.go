package process

import (
	"os/exec"
	"syscall"
)

// StartMarked starts a program with a mark, by which all that it starts is
// found. kill kills all of that.
func StartMarked(cmd *exec.Cmd) (kill func(), err error) {
	uid, gid := -1, -1
	if cmd.SysProcAttr != nil && cmd.SysProcAttr.Credential != nil {
		uid, gid = int(cmd.SysProcAttr.Credential.Uid), int(cmd.SysProcAttr.Credential.Gid)
	}
	mark := NewMark(uid, gid)
	cmd.Env = mark.Environ(cmd.Env)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	group := NewGroup(cmd.Process.Pid, mark)
	return func() { group.Signal(syscall.SIGKILL) }, nil
}
