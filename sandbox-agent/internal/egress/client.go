package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

// A client is a connection to the proxy. Its own goroutine owns it.
type client struct {
	// Static after construction.
	p    *Proxy
	conn net.Conn
	br   *bufio.Reader // of conn; the running watch's alone

	// Owned by serve.
	uid       int // the user of the client's process
	uidKnown  bool
	upstreams *http.Transport // for this connection only; nil before the first request
}

// serve answers the requests of one connection.
func (p *Proxy) serve(ctx context.Context, conn net.Conn) {
	c := &client{p: p, conn: conn}
	defer conn.Close()
	if !p.enter(c) {
		p.note(Event{Reason: DeniedBusy})
		c.refuse(DeniedBusy, hostname.Host{}, false)
		return
	}
	defer p.leave(c)
	reader, ok := p.readers.Get().(*bufio.Reader)
	if !ok {
		return // impossible: the pool makes nothing else
	}
	reader.Reset(conn)
	c.br = reader
	defer func() {
		reader.Reset(nil)
		p.readers.Put(reader)
	}()
	defer func() {
		if c.upstreams != nil {
			c.upstreams.CloseIdleConnections()
		}
	}()
	for idle := headTimeout; ; idle = idleTimeout {
		h, err := c.readHead(idle)
		if err != nil {
			return
		}
		if h.method == http.MethodConnect {
			if !c.connect(ctx, h) {
				return
			}
		} else if !c.forward(ctx, h) {
			return
		}
	}
}

// readHead waits for a request and reads its header, which stays in br. It
// answers malformed ones; an error means that the connection is over.
func (c *client) readHead(idle time.Duration) (head, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(idle)); err != nil {
		return head{}, err
	}
	for n := 1; ; {
		if _, err := c.br.Peek(n); err != nil {
			if errors.Is(err, bufio.ErrBufferFull) {
				c.reject("the head of the request has over 16 KiB")
			}
			return head{}, err
		}
		if n == 1 {
			if err := c.conn.SetReadDeadline(time.Now().Add(headTimeout)); err != nil {
				return head{}, err
			}
			c.skipEmptyLine()
		}
		text, err := c.br.Peek(c.br.Buffered())
		if err != nil {
			return head{}, err
		}
		end, err := headEnd(text)
		if err == nil && end > 0 {
			var h head
			if h, err = parseHead(text[:end]); err == nil {
				return h, c.conn.SetReadDeadline(time.Time{})
			}
		}
		if err != nil {
			c.reject("malformed HTTP/1.1 request")
			return head{}, err
		}
		n = len(text) + 1
	}
}

// skipEmptyLine drops an empty line that some clients send after a body (RFC
// 9112, 2.2).
func (c *client) skipEmptyLine() {
	if text, _ := c.br.Peek(2); c.br.Buffered() >= 2 && bytes.Equal(text, []byte("\r\n")) {
		c.br.Discard(2)
	}
}

// A watch notices a client that leaves while its request is served.
type watch struct {
	c      *client
	cancel context.CancelCauseFunc

	// Guarded by mu.
	mu      sync.Mutex
	done    chan struct{} // closed when the watching goroutine ends; nil: none runs
	stopped bool
}

// watch cancels a request's context with errGone if the client leaves. It reads
// the client's further input into br; when that is full, it no longer notices a
// leaving client. Nobody else may read before the watch stops.
func (c *client) watch(cancel context.CancelCauseFunc) *watch {
	return &watch{c: c, cancel: cancel}
}

// start watches, unless the watch was stopped.
func (w *watch) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped || w.done != nil {
		return
	}
	done := make(chan struct{})
	w.done = done
	w.c.p.running.Go(func() {
		defer close(done)
		for {
			_, err := w.c.br.Peek(w.c.br.Buffered() + 1)
			switch {
			case err == nil:
			case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, bufio.ErrBufferFull):
				return
			default:
				w.cancel(errGone)
				return
			}
		}
	})
}

// pause interrupts watching: when it returns the reader is free.
func (w *watch) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done == nil {
		return
	}
	// Setting the deadline fails only on a closed connection, where the watch ends
	// by itself.
	_ = w.c.conn.SetReadDeadline(time.Unix(1, 0))
	<-w.done
	w.done = nil
	_ = w.c.conn.SetReadDeadline(time.Time{})
}

// stop ends the watching for good.
func (w *watch) stop() {
	w.pause()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
}

// linger ends a connection whose client may still be sending. Closing it at
// once would reset it and lose the answer.
func (c *client) linger() {
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		if c.conn.SetReadDeadline(time.Now().Add(time.Second)) == nil {
			_, _ = io.CopyN(io.Discard, c.conn, 256<<10)
		}
	}
}
