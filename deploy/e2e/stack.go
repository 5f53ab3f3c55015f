package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// Ready is the ready file of a development stack (DESIGN §9).
type Ready struct {
	Revision     string `json:"revision"`
	ControlPlane struct {
		URL string `json:"url"`
		PID int    `json:"pid"`
	} `json:"control_plane"`
	Relays []struct {
		URL      string `json:"url"`
		Tunnel   string `json:"tunnel"`
		AdminURL string `json:"admin_url"`
		PID      int    `json:"pid"`
	} `json:"relays"`
	Sandboxes []struct {
		ID       protocol.SandboxID `json:"id"`
		PID      int                `json:"pid"`
		StateDir string             `json:"state_dir"`
	} `json:"sandboxes"`
	SessionID protocol.SessionID `json:"session_id"`
	PTYID     protocol.PTYID     `json:"pty_id"`
	Users     map[string]struct {
		ID    protocol.UserID `json:"id"`
		Token string          `json:"token"`
	} `json:"users"`
	Extension struct {
		ID  string `json:"id"`
		Dir string `json:"dir"`
	} `json:"extension"` // empty: it wasn't built
}

// User returns a user at the first relay.
func (r Ready) User(name string) User {
	u := r.Users[name]
	return User{ID: u.ID, Token: u.Token, Base: r.Relays[0].URL}
}

// A Stack is a running devstack.
type Stack struct {
	Ready Ready
	Dir   string // its state directory

	cmd    *exec.Cmd
	output *lockedBuffer
	done   chan error
}

// Programs are the executables that a stack needs.
var Programs = []string{
	"./relay/cmd/relay", "./sandbox-agent/cmd/sandbox-agent",
	"./deploy/controlplane/cmd/controlplane", "./deploy/devstack/cmd/devstack",
}

// Build builds the programs of the module at root into bin.
func Build(root, bin string, flags ...string) error {
	return build(root, bin, Programs, flags...)
}

func build(root, bin string, packages []string, flags ...string) error {
	args := append([]string{"build", "-o", bin + string(filepath.Separator)}, flags...)
	cmd := exec.Command("go", append(args, packages...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w: %s", err, out)
	}
	return nil
}

// Start starts a devstack with the programs in bin and its state in dir, which
// goes with the test.
func Start(bin, dir string, flags ...string) (*Stack, error) {
	ready := filepath.Join(dir, "ready.json")
	args := append([]string{
		"--listen", "127.0.0.1:0", "--state-dir", dir, "--temporary", "--ready-file", ready,
		"--grants-per-person", "4096", // all tests are the same three people
	}, flags...)
	s := &Stack{Dir: dir, cmd: exec.Command(filepath.Join(bin, "devstack"), args...), output: &lockedBuffer{}, done: make(chan error, 1)}
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // it must not outlive a test that panics
	started := make(chan error)
	go func() { // Stop receives from done
		runtime.LockOSThread() // Pdeathsig is sent when the thread ends
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		started <- err
		if err == nil {
			s.done <- s.cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	if err := s.Reload(60 * time.Second); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Reload reads the ready file, waiting for it.
func (s *Stack) Reload(within time.Duration) error {
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		data, err := os.ReadFile(filepath.Join(s.Dir, "ready.json"))
		if err == nil {
			return json.Unmarshal(data, &s.Ready)
		}
		select {
		case <-poll.C:
		case err := <-s.done:
			s.done <- err
			return fmt.Errorf("devstack ended: %v: %s", err, s.output)
		case <-deadline.C:
			return fmt.Errorf("devstack is not ready after %v: %s", within, s.output)
		}
	}
}

// Stop ends the stack as Ctrl-C does.
func (s *Stack) Stop() error {
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-s.done:
		s.done <- nil
		if err != nil {
			return fmt.Errorf("devstack: %w: %s", err, s.output)
		}
		return nil
	case <-time.After(time.Minute):
		return errors.Join(errors.New("devstack did not end within a minute of SIGTERM"), s.cmd.Process.Kill())
	}
}

// Output returns what the devstack printed.
func (s *Stack) Output() string { return s.output.String() }

// Logs returns the log of one child, such as "relay-1".
func (s *Stack) Logs(name string) string {
	data, err := os.ReadFile(filepath.Join(s.Dir, "logs", name+".log"))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// NewPTY has user open another terminal that runs command (empty: a shell).
func (s *Stack) NewPTY(ctx context.Context, user User, command string) (protocol.PTYID, error) {
	grant, err := user.Grant(ctx, s.Ready.SessionID)
	if err != nil {
		return "", err
	}
	var answer struct {
		ID protocol.PTYID `json:"id"`
	}
	err = call(ctx, 201, &answer, "POST", user.Base+"/sessions/"+string(s.Ready.SessionID)+"/ptys", grant,
		map[string]any{"command": command})
	return answer.ID, err
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
