package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fairlead/fairlead/deploy/e2e/internal/source"
	"github.com/fairlead/fairlead/protocol"
)

// A printer is a terminal that runs the program printer, with a line to it
// that bypasses everything under test.
type printer struct {
	*source.Stream
	t     *testing.T
	id    protocol.PTYID
	conn  net.Conn
	reply *bufio.Reader
}

// workspace returns the directory that the terminals of an agent share: it is
// on the agent's command line.
func workspace(t testing.TB, pid int) string {
	t.Helper()
	dir, err := flagOf(pid, "--workspace")
	must(t, err)
	return dir
}

// install puts a program into the workspace, where terminals may run it.
func install(t testing.TB, dir, name string) {
	t.Helper()
	in, err := os.Open(filepath.Join(programs, name))
	must(t, err)
	defer in.Close()
	out, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if os.IsExist(err) {
		return
	}
	must(t, err)
	_, err = io.Copy(out, in)
	must(t, err)
	must(t, out.Close())
	must(t, os.Chmod(out.Name(), 0o755)) // whatever our umask
}

// startPrinter has alice open a terminal with a printer.
func startPrinter(t *testing.T, s *Stack, seed uint64) *printer {
	t.Helper()
	return startPrinterIn(t, seed, s.Ready.Sandboxes[0].PID, func(command string) protocol.PTYID { return newPTY(t, s, command) })
}

// startPrinterIn starts a printer in the sandbox of the agent pid, where open
// opens a terminal.
func startPrinterIn(t *testing.T, seed uint64, pid int, open func(command string) protocol.PTYID) *printer {
	t.Helper()
	dir := workspace(t, pid)
	install(t, dir, "printer")
	name := fmt.Sprintf("printer-%x.sock", seed)
	listener, err := net.Listen("unix", filepath.Join(dir, name))
	must(t, err)
	defer listener.Close()
	must(t, os.Chmod(filepath.Join(dir, name), 0o777))
	p := &printer{Stream: source.New(seed), t: t}
	p.id = open(fmt.Sprintf("stty raw -echo -opost; exec ./printer %s %d", name, seed))
	must(t, listener.(*net.UnixListener).SetDeadline(time.Now().Add(patience)))
	p.conn, err = listener.Accept()
	must(t, err)
	t.Cleanup(func() { p.conn.Close() })
	p.reply = bufio.NewReader(p.conn)
	return p
}

func (p *printer) order(format string, args ...any) {
	p.t.Helper()
	_, err := fmt.Fprintf(p.conn, format+"\n", args...)
	must(p.t, err)
}

// rate has it print so many bytes a second; −1: as fast as it can.
func (p *printer) rate(n int) { p.t.Helper(); p.order("rate %d", n) }

// burst has it print n bytes as fast as it can.
func (p *printer) burst(n int) { p.t.Helper(); p.order("burst %d", n) }

// at waits for its answer: how much it has printed.
func (p *printer) at() (n uint64) {
	p.t.Helper()
	must(p.t, p.conn.SetReadDeadline(time.Now().Add(patience)))
	_, err := fmt.Fscanf(p.reply, "at %d\n", &n)
	must(p.t, err)
	return n
}

// stop has it stop, and returns how much it has printed.
func (p *printer) stop() uint64 {
	p.t.Helper()
	p.order("stop")
	return p.at()
}

// finish has it stop at the end of a page, and returns how much it has
// printed.
func (p *printer) finish() uint64 {
	p.t.Helper()
	p.order("finish")
	return p.at()
}

// watch has a user watch the printer's terminal until the test ends.
func (p *printer) watch(ctx context.Context, s *Stack, name string, opts Viewing) *Viewer {
	p.t.Helper()
	opts.Session, opts.PTY, opts.Source = s.Ready.SessionID, p.id, p.Stream
	v := s.Ready.User(name).Watch(ctx, opts)
	p.t.Cleanup(func() { v.Close() })
	return v
}
