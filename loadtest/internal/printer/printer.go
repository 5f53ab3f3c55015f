// Package printer has this program print in the terminals of a session what a
// load test watches, and gives it orders.
package printer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/client"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

const (
	// openTimeout bounds the time from the request for a terminal to the first
	// word of the program in it.
	openTimeout = 30 * time.Second
	// maxLines bounds what is kept of a terminal's answers, in bytes.
	maxLines = 64 << 10
)

// A Program is this executable in the workspace of a session, where it prints
// what a load test watches (package source).
type Program struct {
	// Static after construction.
	user  *client.User
	name  string     // in the workspace
	first sync.Mutex // held while a terminal is opened: the first one makes the copy
}

// Install puts this executable into the workspace of the user's session.
func Install(ctx context.Context, user *client.User) (*Program, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("path of this program: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("this program: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return nil, fmt.Errorf("this program: %w", err)
	}
	p := &Program{user: user, name: ".loadtest-" + hex.EncodeToString(sum.Sum(nil)[:8])}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if err := user.PutFile(ctx, p.name, io.NopCloser(f)); err != nil {
		return nil, fmt.Errorf("putting this program into the workspace: %w", err)
	}
	return p, nil
}

// Simulated returns what every terminal of a simulated sandbox runs anyway.
func Simulated(user *client.User) *Program { return &Program{user: user} }

// Remove removes it from the workspace again.
func (p *Program) Remove(ctx context.Context) error {
	if p.name == "" {
		return nil
	}
	return errors.Join(p.user.DeleteFile(ctx, p.name), p.user.DeleteFile(ctx, p.name+"x"))
}

// command starts the program. What the files API has written isn't executable,
// so the first one makes a copy that is.
func (p *Program) command() string {
	if p.name == "" {
		return "source"
	}
	return fmt.Sprintf(`stty raw -echo; if ! test -x %[1]sx; then cp %[1]s %[1]sx.$$ && chmod 755 %[1]sx.$$ && mv -f %[1]sx.$$ %[1]sx; fi; exec ./%[1]sx source`, p.name)
}

// A Terminal runs the source, under the control of this process.
type Terminal struct {
	// Static after construction.
	PTY    protocol.PTYID
	Viewer *client.Viewer
	user   *client.User

	// Owned by the viewer: used in the handler's methods, and by what Viewer.Do
	// runs.
	next  client.Handler // gets everything in place of lines; may be nil
	lines []byte         // of answers, without what was taken
}

// Open opens a terminal in which the source runs, and takes control of it. by
// serves the sockets.
func (p *Program) Open(ctx context.Context, by client.Transport) (*Terminal, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	p.first.Lock()
	defer p.first.Unlock()
	pty, err := p.user.CreatePTY(ctx, op.PTYCreate{Command: p.command(), Cols: 120, Rows: 40})
	if err != nil {
		return nil, fmt.Errorf("opening a terminal: %w", err)
	}
	t := &Terminal{PTY: pty, user: p.user}
	t.Viewer = client.Watch(context.WithoutCancel(ctx), p.user, client.Options{PTY: pty, Controls: true, Transport: by}, t)
	if _, err = t.AwaitLine(ctx, "ready"); err == nil {
		err = t.Viewer.AwaitControl(ctx)
	}
	if err != nil {
		t.Close(context.WithoutCancel(ctx))
		return nil, fmt.Errorf("starting the source in a terminal of %s/%s: %w", runtime.GOOS, runtime.GOARCH, err)
	}
	return t, nil
}

// Bare returns a terminal in which the source was started by who serves the
// WebSocket at url, such as a baseline. Closing its Viewer is enough.
func Bare(ctx context.Context, user *client.User, url string, by client.Transport) (*Terminal, error) {
	t := &Terminal{}
	t.Viewer = client.Watch(context.WithoutCancel(ctx), user, client.Options{URL: url, Transport: by}, t)
	if _, err := t.AwaitLine(ctx, "ready"); err != nil {
		t.Viewer.Close()
		return nil, err
	}
	return t, nil
}

// Follow has h hear all that comes, in place of [Terminal.Ask]; nil ends it.
func (t *Terminal) Follow(h client.Handler) { t.Viewer.Do(func() { t.next = h }) }

// Output implements [client.Handler].
func (t *Terminal) Output(p []byte, at time.Time) {
	if t.next != nil {
		t.next.Output(p, at)
		return
	}
	if room := maxLines - len(t.lines); room < len(p) {
		t.lines = t.lines[:0] // a stream, not an answer
		p = p[max(0, len(p)-maxLines):]
	}
	t.lines = append(t.lines, p...)
}

// Jump implements [client.Handler].
func (t *Terminal) Jump(j client.Jump) {
	if t.next != nil {
		t.next.Jump(j)
	}
}

// Lost implements [client.Handler].
func (t *Terminal) Lost(at time.Time, why error) {
	if t.next != nil {
		t.next.Lost(at, why)
	}
}

// Order gives the source an order and waits until it was written to the
// terminal.
func (t *Terminal) Order(ctx context.Context, order string) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := t.Viewer.Type(ctx, order+"\n", nil); err != nil {
		return fmt.Errorf("order %q to the source: %w", order, err)
	}
	if err := t.Viewer.AwaitWritten(ctx); err != nil {
		return fmt.Errorf("order %q to the source: %w", order, err)
	}
	return nil
}

// Ask gives an order and returns the rest of the answer, a line that begins
// with prefix. Nobody may [Terminal.Follow] meanwhile.
func (t *Terminal) Ask(ctx context.Context, order, prefix string) (string, error) {
	t.Viewer.Do(func() { t.lines = nil })
	if err := t.Order(ctx, order); err != nil {
		return "", err
	}
	return t.AwaitLine(ctx, prefix)
}

// AwaitLine waits for a line that begins with prefix and returns the rest of it.
func (t *Terminal) AwaitLine(ctx context.Context, prefix string) (rest string, err error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	err = t.Viewer.Await(ctx, fmt.Sprintf("a line %q of the source", prefix), func() (found bool) {
		rest, found = t.take(prefix)
		return found
	})
	return rest, err
}

// take takes the first line that begins with prefix, and those before it, and
// returns the rest of it.
func (t *Terminal) take(prefix string) (rest string, found bool) {
	for from := 0; ; {
		i := bytes.Index(t.lines[from:], []byte("\r\n"))
		if i < 0 {
			return "", false
		}
		line := string(t.lines[from : from+i])
		from += i + 2
		if rest, found = strings.CutPrefix(line, prefix); found {
			t.lines = append([]byte(nil), t.lines[from:]...)
			return strings.TrimSpace(rest), true
		}
	}
}

// Close ends the terminal.
func (t *Terminal) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	t.Viewer.Close()
	return t.user.ClosePTY(ctx, t.PTY)
}
