package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/deploy/program"
)

// Declare declares "source", which runs in a terminal until it is told to quit
// or the terminal is gone.
func Declare(c *program.Command) {
	c.Hide()
	c.Run(func(ctx context.Context, _ *program.Env) error { return terminal(ctx, os.Stdin, os.Stdout) })
}

// terminal runs a Machine between in and out, of which in is made raw if it is
// a terminal.
func terminal(ctx context.Context, in, out *os.File) error {
	restore, err := raw(in)
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	defer restore()
	return Run(ctx, in, out)
}

// Run obeys what comes from in until the order to quit, the end of in or of
// ctx. It leaves a goroutine behind that reads in, until that ends.
func Run(ctx context.Context, in io.Reader, out io.Writer) error {
	quit := make(chan struct{})
	m := New(out, sync.OnceFunc(func() { close(quit) }))
	m.precise = true
	defer m.Close()
	m.Ready()
	type read struct {
		p   []byte
		err error
	}
	reads, taken := make(chan read), make(chan struct{})
	over := make(chan struct{})
	defer close(over)
	go func() { // ends with in, at the latest with the process
		buf := make([]byte, 4096)
		for {
			n, err := in.Read(buf)
			select {
			case reads <- read{buf[:n], err}:
			case <-over:
				return
			}
			if err != nil {
				return
			}
			select {
			case <-taken:
			case <-over:
				return
			}
		}
	}()
	for {
		select {
		case r := <-reads:
			m.Input(r.p)
			if errors.Is(r.err, io.EOF) || errors.Is(r.err, unix.EIO) { // the other side of a PTY is gone
				return nil
			}
			if r.err != nil {
				return r.err
			}
			taken <- struct{}{}
		case <-quit:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// raw makes f raw, if it is a terminal: nothing typed is echoed or held back,
// nothing written is changed. restore undoes that.
func raw(f *os.File) (restore func(), err error) {
	fd := int(f.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) {
		return func() {}, nil
	}
	if err != nil {
		return nil, err
	}
	t := *before
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &t); err != nil {
		return nil, err
	}
	return func() { unix.IoctlSetTermios(fd, unix.TCSETS, before) }, nil //nolint:errcheck // the terminal may be gone
}
