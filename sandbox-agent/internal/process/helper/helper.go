// Package helper has a process of its own answer one question with the rights of
// another user: what lies in that one's folders may be anything, and lead anywhere.
package helper

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// maxWhy bounds what is kept of why a process has failed, in bytes.
const maxWhy = 300

// A Helper is the process that answers. Its Dir is also its home.
type Helper struct {
	Command   []string // starts it. Its user can run that
	Dir       string
	User      *syscall.Credential // nil: the agent's own
	Patience  time.Duration       // how long it may take
	MaxMemory uint64              // in bytes; it bounds itself to twice that, see [Limits]
	MaxAnswer int                 // in bytes
}

// Ask has the process answer a question. Both are JSON: on its standard input and
// output. An error may have text of the process.
func (h Helper) Ask(ctx context.Context, question, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, h.Patience)
	defer cancel()
	asked, err := json.Marshal(question)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, h.Command[0], h.Command[1:]...)
	cmd.Dir = h.Dir
	cmd.Env = []string{"HOME=" + h.Dir, "GOMAXPROCS=2", "GOMEMLIMIT=" + strconv.FormatUint(h.MaxMemory, 10)}
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: h.User}
	var why bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(asked), &limited{&why, maxWhy}
	printed, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := process.StartConfined(cmd); err != nil {
		return fmt.Errorf("a process of another user can't be started: %w", err)
	}
	defer context.AfterFunc(ctx, func() { printed.Close() })() // its user's other processes may hold the other end
	text, err := io.ReadAll(io.LimitReader(printed, int64(h.MaxAnswer)+1))
	if err == nil && len(text) > h.MaxAnswer {
		err = syscall.EFBIG
		cancel()
	}
	if ended := cmd.Wait(); err == nil && ended != nil {
		err = fmt.Errorf("%w: %s", ended, bytes.TrimSpace(why.Bytes()))
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// limited takes what there is room for.
type limited struct {
	to   *bytes.Buffer
	room int
}

func (l *limited) Write(p []byte) (int, error) {
	l.to.Write(p[:min(len(p), max(l.room-l.to.Len(), 0))])
	return len(p), nil
}

// Limits are what the answering process may use.
type Limits struct {
	Patience  time.Duration // of processor time twice that
	MaxMemory uint64        // as in [Helper]
	MaxFile   uint64        // how long it may make a file, in bytes; 0: it isn't bounded
}

// Set bounds this process, for good.
func (l Limits) Set() error {
	limits := []limit{{unix.RLIMIT_DATA, 2 * l.MaxMemory}, {unix.RLIMIT_CPU, uint64(2*l.Patience/time.Second) + 1}, {unix.RLIMIT_CORE, 0}}
	if l.MaxFile > 0 {
		limits = append(limits, limit{unix.RLIMIT_FSIZE, l.MaxFile})
	}
	for _, l := range limits {
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return err
		}
	}
	return nil
}

type limit struct {
	what int
	most uint64
}
