package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// killAfter is how long a child gets to end on SIGTERM.
const killAfter = 12 * time.Second

// A child is one of the stack's programs, running.
type child struct {
	name string
	log  string // file that its output goes to
	pid  atomic.Int64
	done chan struct{} // closed when it has ended
	err  error         // how; set before done is closed
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
		Setpgid:   true, // a Ctrl-C reaches us alone, so that we end them in order
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
	return c, <-started
}

// environment returns what children inherit: no FAIRLEAD_ variable of ours
// may configure them behind the stack's back.
func environment() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "FAIRLEAD_") {
			env = append(env, kv)
		}
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

func lastLine(path string) string {
	data, err := os.ReadFile(path)
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
	start func() (*child, error)
	say   func(format string, args ...any)

	mu      sync.Mutex
	current *child // guarded by mu
}

// restart limits: at once after a life, later and later after deaths before
// readiness.
const (
	restartPause    = 20 * time.Millisecond
	longestPause    = 5 * time.Second
	healthyLifetime = 2 * time.Second
)

// keep restarts the program until ctx ends. It returns when the last one has
// ended.
func (k *keeper) keep(ctx context.Context) {
	pause := restartPause
	for {
		c := k.child()
		began := time.Now()
		<-c.done
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= healthyLifetime {
			pause = restartPause
		}
		k.say("%v; starting it again", c.failure())
		for {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			pause = min(2*pause, longestPause)
			next, err := k.start()
			if err == nil {
				k.set(next)
				break
			}
			k.say("%v", err)
		}
	}
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
