package generator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// maxStderr is how much of what a child says last is told, in bytes.
const maxStderr = 2 << 10

// A child is one generator process, seen from its parent.
type child struct {
	// Static after construction.
	name  string
	group *Group
	cmd   *exec.Cmd
	stdin io.WriteCloser
	said  *tail
	ready chan struct{} // closed at its first word
	ended chan struct{} // closed when it is gone

	mu      sync.Mutex
	next    int                  // guarded by mu
	waiting map[int]chan message // guarded by mu: by request
}

func (g *Group) startChild(h hello) (*child, error) {
	c := &child{
		name: h.Name, group: g, said: new(tail),
		ready: make(chan struct{}), ended: make(chan struct{}), waiting: make(map[int]chan message),
	}
	command := g.pool.Command
	c.cmd = exec.Command(command[0], command[1:]...)
	c.cmd.Stderr = c.said
	// A Ctrl-C is the parent's to handle; without a parent there is nobody to
	// work for.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start of %s: %w", h.Name, err)
	}
	go c.follow(stdout) // ends with the process; ended says so
	if err := c.send(h); err != nil {
		c.cmd.Process.Kill()
		<-c.ended
		return nil, fmt.Errorf("start of %s: %w", h.Name, err)
	}
	return c, nil
}

// follow takes what the child says until it ends.
func (c *child) follow(stdout io.Reader) {
	defer close(c.ended)
	lines := bufio.NewReaderSize(stdout, 64<<10)
	var err error
	for err == nil {
		var m message
		if err = readLine(lines, &m); err == nil {
			err = c.heard(m)
		}
	}
	if !errors.Is(err, io.EOF) {
		c.cmd.Process.Kill() // it can't be understood, or can't go on
	}
	if ended := c.cmd.Wait(); ended != nil && errors.Is(err, io.EOF) {
		err = ended
	}
	text := fmt.Sprintf("%s ended: %v", c.name, err)
	if said := c.said.String(); said != "" {
		text += ": " + said
	}
	c.group.fail(errors.New(text))
}

func (c *child) heard(m message) error {
	switch {
	case m.Fatal != "":
		return errors.New(m.Fatal)
	case m.Ready:
		close(c.ready)
	case m.Snapshot != nil:
		c.group.pool.Out.Merge(m.Snapshot.Phase, m.Snapshot.Block, m.Snapshot.What)
	case m.ID != 0:
		c.mu.Lock()
		defer c.mu.Unlock()
		if waiter, ok := c.waiting[m.ID]; ok {
			waiter <- m // has room for the one answer
			delete(c.waiting, m.ID)
		}
	}
	return nil
}

// ask sends r and waits for the answer.
func (c *child) ask(ctx context.Context, r request) (json.RawMessage, error) {
	answer := make(chan message, 1)
	c.mu.Lock()
	c.next++
	r.ID = c.next
	c.waiting[r.ID] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, r.ID)
	}()
	if err := c.send(r); err != nil {
		return nil, fmt.Errorf("order to %s: %w", c.name, err)
	}
	select {
	case m := <-answer:
		if m.Error != "" {
			return m.Answer, fmt.Errorf("%s: %s", c.name, m.Error)
		}
		return m.Answer, nil
	case <-c.group.failed:
		return nil, c.group.err()
	case <-c.ended:
		return nil, fmt.Errorf("%s has ended", c.name)
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for %s: %w", c.name, ctx.Err())
	}
}

func (c *child) send(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = c.stdin.Write(append(data, '\n')) // one write: os.File locks
	return err
}

func (c *child) over() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte // guarded by mu
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - maxStderr; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
