package codingagent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

const (
	// probeFor bounds a probe.
	probeFor = 20 * time.Second
	// probeBytes bounds what is kept of what it prints.
	probeBytes = 256 << 10
)

// Probe runs an installed program as a user that has nothing, in an empty home,
// and returns what it prints. It fails with KindTooMany when no uid is free, and
// with KindUnavailable when the program can't be started or doesn't end.
func (h *Host) Probe(ctx context.Context, program string, args []string) (printed []byte, code int, err error) {
	uid, gid, release, err := h.o.Accounts.Reserve()
	if err != nil {
		return nil, 0, err
	}
	defer release()
	home, err := os.MkdirTemp("", "fairlead-probe-")
	if err != nil {
		return nil, 0, protocol.Fault(protocol.KindUnavailable, err)
	}
	defer os.RemoveAll(home)
	if uid >= 0 {
		if err := os.Chown(home, uid, gid); err != nil {
			return nil, 0, protocol.Fault(protocol.KindUnavailable, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, probeFor)
	defer cancel()
	mark := process.NewMark(uid, gid)
	output := &capped{room: probeBytes}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = home, output, output, lingerFor
	cmd.Env = mark.Environ([]string{"PATH=" + filepath.Dir(program) + ":" + h.o.Setup.SearchPath, "HOME=" + home, "TERM=dumb", "NO_COLOR=1"})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if uid >= 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	if err := process.StartConfined(cmd); err != nil {
		return nil, 0, protocol.Fault(protocol.KindUnavailable, err)
	}
	group := process.NewGroup(cmd.Process.Pid, mark)
	err = cmd.Wait()
	for range maxKills {
		if group.Signal(syscall.SIGKILL) == 0 {
			break
		}
		time.Sleep(lookEvery / 10)
	}
	if ctx.Err() != nil {
		return nil, 0, protocol.Fault(protocol.KindUnavailable, ctx.Err())
	}
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, 0, protocol.Fault(protocol.KindUnavailable, err)
	}
	return output.held.Bytes(), cmd.ProcessState.ExitCode(), nil
}

// capped keeps the beginning of what is written.
type capped struct {
	held bytes.Buffer
	room int
}

func (c *capped) Write(p []byte) (int, error) {
	c.held.Write(p[:min(len(p), c.room-c.held.Len())])
	return len(p), nil
}
