package source

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// orders returns what is ordered; it is closed when the socket is.
func orders(r io.Reader) <-chan string {
	lines := make(chan string, 16)
	go func() { // ends with the socket; the program doesn't wait for it
		defer close(lines)
		for scanner := bufio.NewScanner(r); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}

// tick is how often something is printed at a limited rate.
const tick = 10 * time.Millisecond

// A printer prints a stream as it is told.
type printer struct {
	out    io.Writer
	stream *Stream
	conn   io.Writer
	at     uint64 // printed so far
	rate   int    // bytes per second, −1: no limit
}

// Print prints s to out, as fast and as much as it is told through conn, so
// that a test knows what a terminal printed without asking anything that it
// tests. It returns when conn ends.
//
// An order is a line: "rate N" prints N bytes a second from now on (−1: as
// fast as out takes them, 0: nothing), "burst N" prints N bytes at once, "stop"
// is "rate 0" and is answered with "at N", what was printed in all, "finish"
// prints the rest of the page before it is answered so.
func (s *Stream) Print(out io.Writer, conn io.ReadWriter) error {
	p := &printer{out: out, stream: s, conn: conn}
	return p.run(orders(conn))
}

func (p *printer) run(orders <-chan string) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	always := make(chan time.Time)
	close(always)
	for {
		var due <-chan time.Time
		n := 16 << 10
		switch {
		case p.rate < 0:
			due = always
		case p.rate > 0:
			due, n = ticker.C, max(1, p.rate/int(time.Second/tick))
		}
		select {
		case order, ok := <-orders:
			if !ok {
				return nil
			}
			if err := p.obey(order); err != nil {
				return err
			}
		case <-due:
			if err := p.print(n); err != nil {
				return err
			}
		}
	}
}

func (p *printer) obey(order string) error {
	verb, argument, _ := strings.Cut(order, " ")
	n, _ := strconv.Atoi(argument)
	switch verb {
	case "rate":
		p.rate = n
		return nil
	case "burst":
		return p.print(n)
	case "finish":
		if left := p.at % PageBytes; left > 0 {
			if err := p.print(PageBytes - int(left)); err != nil {
				return err
			}
		}
	}
	p.rate = 0
	_, err := fmt.Fprintf(p.conn, "at %d\n", p.at)
	return err
}

func (p *printer) print(n int) error {
	for n > 0 {
		part := p.stream.From(p.at)
		part = part[:min(len(part), n)]
		if _, err := p.out.Write(part); err != nil {
			return err
		}
		p.at += uint64(len(part))
		n -= len(part)
	}
	return nil
}
