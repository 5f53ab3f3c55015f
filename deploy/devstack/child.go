package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/deploy/program/pause"
)

// killAfter is how long a child gets to end on SIGTERM.
const killAfter = 12 * time.Second

// A child is one of the stack's programs, running.
type child struct {
	name  string
	log   string // file that its output goes to
	ready string // file that it writes once it is ready; empty if it writes none
	pid   atomic.Int64
	done  chan struct{} // closed when it has ended
	err   error         // how; set before done is closed
}

// start runs a program. It gets SIGTERM when ctx ends, and when this process
// dies in whatever way, and SIGKILL killAfter later.
func start(ctx context.Context, name, logFile, path string, args ...string) (*child, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = environment()
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = killAfter
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true, // a Ctrl-C reaches us alone, who end them
		Pdeathsig: syscall.SIGTERM,
	}
	c := &child{name: name, log: logFile, done: make(chan struct{})}
	started := make(chan error)
	go func() { // whoever holds the child waits for done
		defer out.Close()
		// Pdeathsig fires when the thread that forked ends, so it must live
		// as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("%s: %w", name, err)
			return
		}
		c.pid.Store(int64(cmd.Process.Pid))
		started <- nil
		c.err = cmd.Wait()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// wasReady reports whether the child has said that it was ready.
func (c *child) wasReady() bool {
	_, err := os.Stat(c.ready)
	return err == nil
}

// environment returns what children inherit: no FAIRLEAD_ variable of ours
// may configure them behind the stack's back.
//
// All of them are on one machine, and who uses them as well: each leaves half of
// the cores to the others, unless GOMAXPROCS says otherwise. On two cores that
// makes a tool call through the relay take 1.8 instead of 2.2 times a direct one,
// and the highest paced rate to 1,000 viewers 4 instead of 3 times the baseline's.
func environment() []string {
	var env []string
	limited := false
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "FAIRLEAD_") {
			env = append(env, kv)
			limited = limited || strings.HasPrefix(kv, "GOMAXPROCS=")
		}
	}
	if !limited {
		env = append(env, fmt.Sprintf("GOMAXPROCS=%d", max(1, runtime.NumCPU()/2)))
	}
	return env
}

// failure describes how the child ended, with the last line it said.
func (c *child) failure() error {
	how := "ended"
	if c.err != nil {
		how = c.err.Error()
	}
	return fmt.Errorf("%s %s: %s (its log: %s)", c.name, how, lastLine(c.log), c.log)
}

// maxLastLine is how much of a log's end is read for its last line, in bytes.
const maxLastLine = 4096

func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	data, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-maxLastLine), maxLastLine))
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(lines[len(lines)-1])
}

// waitFile waits until path exists and reads it, unless the child ends or ctx
// does.
func (c *child) waitFile(ctx context.Context, path string) ([]byte, error) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		data, err := os.ReadFile(path)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return data, err
		}
		select {
		case <-ticker.C:
		case <-c.done:
			return nil, c.failure()
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: not ready in time: %s (its log: %s)", c.name, lastLine(c.log), c.log)
		}
	}
}

// A keeper restarts a program whenever it dies.
type keeper struct {
	start   func() (*child, error)
	started func() // called after each start again
	say     func(format string, args ...any)

	mu      sync.Mutex
	current *child // guarded by mu
}

// A program that was ready is started again at once. After deaths before
// readiness, and failed starts, the pause doubles from restartPause on.
const (
	restartPause = 20 * time.Millisecond
	longestPause = 5 * time.Second
)

// keep restarts the program until ctx ends. It returns when the last one has
// ended.
func (k *keeper) keep(ctx context.Context) {
	var pause time.Duration
	for {
		c := k.child()
		<-c.done
		if ctx.Err() != nil {
			return
		}
		k.say("%v; starting it again", c.failure())
		if c.wasReady() {
			pause = 0
		} else {
			pause = longer(pause)
		}
		pause = k.restart(ctx, pause)
	}
}

// restart starts the program after a wait, until that succeeds or ctx ends.
// It returns the last wait.
func (k *keeper) restart(ctx context.Context, wait time.Duration) time.Duration {
	for {
		if pause.For(ctx, wait) != nil {
			return wait
		}
		next, err := k.start()
		if err == nil {
			k.set(next)
			k.started()
			return wait
		}
		k.say("%v", err)
		wait = longer(wait)
	}
}

func longer(pause time.Duration) time.Duration {
	return min(max(2*pause, restartPause), longestPause)
}

func (k *keeper) child() *child {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

func (k *keeper) set(c *child) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = c
}
