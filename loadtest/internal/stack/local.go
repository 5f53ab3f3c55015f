package stack

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/program/hops"
)

const (
	// startTimeout bounds the start of a stack.
	startTimeout = 60 * time.Second
	// stopTimeout is how long a stack may take to end; devstack kills its own
	// children after 12 s.
	stopTimeout = 20 * time.Second
	// restartTimeout bounds the time until a killed relay is ready again.
	restartTimeout = 30 * time.Second
)

// Options say what a local stack consists of.
type Options struct {
	Bin       string // directory with the programs
	Relays    int    // 0: one
	Sandboxes int    // 0: one
	People    int    // members beside the three of every stack
	Impair    string // a profile for what lies between the sandboxes and the first relay; empty: nothing
	Seed      uint64 // of the impairment
	// StandIns has the sandboxes find a stand-in for each coding agent's program.
	StandIns bool
	Flags    []string
	// Hops has programs that were built with the tag hops note what passes them, in
	// the state directory.
	Hops bool
}

// A Local is a development stack of its own, started for a run.
type Local struct {
	// Static after construction, Target apart.
	cmd    *exec.Cmd
	log    string // file with what devstack prints
	done   chan struct{}
	shaper *Shaper // nil without impairment
	keep   bool
	agents string // folder of the stand-ins; empty: none

	mu      sync.Mutex
	target  Target // guarded by mu
	err     error  // how devstack ended; set before done is closed
	stopped sync.Once
}

// StartLocal starts a stack with the programs in o.Bin, its state in a temporary
// directory. Whoever starts it calls Stop. Should this process die, the kernel
// ends the stack.
func StartLocal(ctx context.Context, o Options) (*Local, error) {
	devstack := filepath.Join(o.Bin, "devstack")
	if _, err := os.Stat(devstack); err != nil {
		return nil, program.Hint(fmt.Errorf("--local: devstack is not in %s", o.Bin), "make build puts all programs into bin, --bin names another directory")
	}
	dir, err := os.MkdirTemp("", "fairlead-loadtest-")
	if err != nil {
		return nil, err
	}
	l := &Local{log: filepath.Join(dir, "devstack.log"), done: make(chan struct{}), target: Target{Dir: dir}}
	flags := append([]string{
		"--listen", "127.0.0.1:0", "--state-dir", dir, "--temporary", "--ready-file", filepath.Join(dir, readyFile),
		"--relays", strconv.Itoa(max(o.Relays, 1)), "--sandboxes", strconv.Itoa(max(o.Sandboxes, 1)),
		"--people", strconv.Itoa(o.People),
	}, o.Flags...)
	if o.StandIns {
		if l.agents, err = installStandIns(dir); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir), os.RemoveAll(l.agents))
		}
		flags = append(flags, "--sandbox-config", filepath.Join(dir, sandboxConfig))
	}
	if o.Impair != "" {
		if l.shaper, err = startShaper(o.Impair, o.Seed); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		flags = append(flags, "--tunnel-listen", l.shaper.target, "--sandbox-relays", l.shaper.addr)
	}
	var env []string
	if o.Hops {
		env = []string{hops.Variable + "=" + dir}
	}
	if err := l.start(devstack, flags, env); err != nil {
		l.shaper.close()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := l.await(starting); err != nil {
		if ctx.Err() == nil {
			l.Keep()
			err = fmt.Errorf("%w (its logs: %s)", err, dir)
		}
		return nil, errors.Join(err, l.Stop())
	}
	return l, nil
}

const readyFile = "ready.json"

func (l *Local) start(path string, flags, env []string) error {
	out, err := os.OpenFile(l.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	l.cmd = exec.Command(path, flags...)
	l.cmd.Stdout, l.cmd.Stderr = out, out
	l.cmd.Env = append(os.Environ(), env...)
	l.cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true, // a Ctrl-C reaches us alone, who end it
		Pdeathsig: syscall.SIGTERM,
	}
	started := make(chan error)
	go func() { // Stop waits for done
		defer out.Close()
		runtime.LockOSThread() // Pdeathsig fires when the thread that forked ends
		defer runtime.UnlockOSThread()
		if err := l.cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		err := l.cmd.Wait()
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()
		close(l.done)
	}()
	return <-started
}

// await waits for the ready file.
func (l *Local) await(ctx context.Context) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		err := l.Refresh()
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return err
		}
		select {
		case <-poll.C:
		case <-l.done:
			return l.failure()
		case <-ctx.Done():
			return fmt.Errorf("the local stack was not ready in time: %w: %s", ctx.Err(), lastLine(l.log))
		}
	}
}

// Shaper returns the bad network in front of the first relay's tunnel, nil
// without [Options.Impair].
func (l *Local) Shaper() *Shaper { return l.shaper }

// StandIn returns the path of the stand-in for a coding agent's program.
func (l *Local) StandIn(name string) string { return filepath.Join(l.agents, name) }

// Refresh reads the ready file again: a relay that was restarted has another
// process.
func (l *Local) Refresh() error {
	dir := l.Target().Dir
	data, err := os.ReadFile(filepath.Join(dir, readyFile))
	if err != nil {
		return err
	}
	t := Target{Dir: dir}
	if err := json.Unmarshal(data, &t); err != nil {
		return fmt.Errorf("ready file: %w", err)
	}
	if err := t.check(); err != nil {
		return fmt.Errorf("ready file: %w", err)
	}
	l.mu.Lock()
	l.target = t
	l.mu.Unlock()
	return nil
}

// Target returns the stack as it is now.
func (l *Local) Target() *Target {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.target
	return &t
}

// Done is closed when the stack has ended, by itself or by Stop.
func (l *Local) Done() <-chan struct{} { return l.done }

// Err says how the stack ended by itself.
func (l *Local) Err() error {
	select {
	case <-l.done:
		return l.failure()
	default:
		return nil
	}
}

func (l *Local) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	how := "ended"
	if l.err != nil {
		how = l.err.Error()
	}
	return fmt.Errorf("the local stack: devstack %s: %s", how, lastLine(l.log))
}

// Kill kills relay i with SIGKILL, and returns when that was and a function
// that waits until devstack has started it again and it says that it is ready.
func (l *Local) Kill(i int) (at time.Time, back func(context.Context) error, err error) {
	t := l.Target()
	if i < 0 || i >= len(t.Relays) {
		return time.Time{}, nil, fmt.Errorf("there is no relay %d", i+1)
	}
	victim := t.Relays[i]
	at = time.Now()
	if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil {
		return time.Time{}, nil, fmt.Errorf("relay %d: %w", i+1, err)
	}
	return at, func(ctx context.Context) error { return l.awaitRelay(ctx, i, victim.PID) }, nil
}

// awaitRelay waits until relay i has another pid than old and is ready.
func (l *Local) awaitRelay(ctx context.Context, i, old int) error {
	ctx, cancel := context.WithTimeout(ctx, restartTimeout)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		if err := l.Refresh(); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if r := l.Target().Relays[i]; r.PID != old && answers(ctx, r.AdminURL+"/readyz") {
			return nil
		}
		select {
		case <-poll.C:
		case <-l.done:
			return l.failure()
		case <-ctx.Done():
			return fmt.Errorf("relay %d did not come back: %w", i+1, ctx.Err())
		}
	}
}

func answers(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// Keep makes Stop leave the logs where they are.
func (l *Local) Keep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep = true
}

// Logs returns the directory with the programs' logs.
func (l *Local) Logs() string { return filepath.Join(l.Target().Dir, "logs") }

// Stop ends the stack and removes its state, all but the logs after Keep.
func (l *Local) Stop() error {
	var err error
	l.stopped.Do(func() {
		err = errors.Join(l.end(), l.Clean())
		l.shaper.close()
	})
	return err
}

func (l *Local) end() error {
	select {
	case <-l.done:
		return nil
	default:
	}
	l.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-l.done:
		return nil
	case <-time.After(stopTimeout):
		l.cmd.Process.Kill()
		<-l.done
		return fmt.Errorf("devstack did not end within %v of SIGTERM and was killed", stopTimeout)
	}
}

// Clean removes the stack's state, as Stop does. It does so again when something
// was still written meanwhile.
func (l *Local) Clean() error {
	l.mu.Lock()
	dir, keep := l.target.Dir, l.keep
	l.mu.Unlock()
	if l.agents != "" {
		if err := os.RemoveAll(l.agents); err != nil {
			return err
		}
	}
	if !keep {
		return os.RemoveAll(dir)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if name := e.Name(); name != "logs" && name != filepath.Base(l.log) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, name)))
		}
	}
	return err
}

// maxLine bounds what is told of a log, in bytes.
const maxLine = 1000

// lastLine returns the last line of a file that names an error, else the last one.
func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	last, failed := "", ""
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		last = string(line[:min(len(line), maxLine)])
		if bytes.Contains(line, []byte("error: ")) {
			failed = last
		}
	}
	return cmp.Or(failed, last)
}
