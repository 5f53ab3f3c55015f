package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

// tlsPort is where a tunnel must carry TLS that names the host.
const tlsPort = 443

// accessDenied is a fatal TLS alert, with which clients report more than that
// the connection was closed.
var accessDenied = []byte{21, 3, 3, 0, 2, 2, 49}

// connect serves a CONNECT. It reports whether another request may follow.
func (c *client) connect(ctx context.Context, h head) bool {
	host, err := hostname.Parse(h.target, 0)
	if err != nil {
		c.reject("the target of CONNECT must be host:port")
		return false
	}
	if h.hasHost {
		if named, err := hostname.Parse(h.host, host.Port); err != nil || named.WithPort(0) != host.WithPort(0) {
			c.reject("Host is not the target of CONNECT")
			return false
		}
	}
	c.br.Discard(h.bytes)
	event := Event{Host: host, Tunnel: true}
	who, refused := c.authenticate(h)
	if refused != "" {
		event.Reason = refused
		c.p.note(event)
		c.refuse(refused, host, true)
		return true
	}
	event.Session, event.PTY = who.session, who.pty

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	gone := c.watch(cancel)
	gone.start()
	event.Reason, event.Waited = c.p.decide(ctx, who, host)
	c.p.note(event)
	var upstream net.Conn
	if event.Reason.Allowed() {
		upstream, err = c.p.dial(ctx, host)
	}
	gone.stop()
	if !event.Reason.Allowed() {
		c.refuse(event.Reason, host, true)
		return event.Reason != DeniedGone
	}
	if err != nil {
		event.Reason = dialFailure(err)
		c.p.note(event)
		c.refuse(event.Reason, host, true)
		return true
	}
	defer upstream.Close()
	if _, err := c.conn.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		return false
	}
	c.p.counters.tunnels.Add(1)
	defer c.p.counters.tunnels.Add(-1)
	t := &tunnel{client: c, upstream: upstream, event: event}
	t.run(ctx)
	return false
}

// A tunnel carries bytes between a client and a host. Its two directions report
// to run, which alone closes.
type tunnel struct {
	client   *client
	upstream net.Conn
	event    Event // as it was allowed
}

// run carries bytes until both directions have ended, one has failed, or a new
// rule denies the host. It passes the end of one direction on, and the other
// continues.
func (t *tunnel) run(ctx context.Context) {
	p := t.client.p
	var first []byte
	if t.event.Host.Port == tlsPort && t.event.Reason != AllowedLoopback {
		// Nothing is sent in either direction before the host is known.
		var ok bool
		if first, ok = t.inspect(); !ok {
			return
		}
	}
	ended := make(chan bool, 2) // whether it ended well
	var both sync.WaitGroup
	both.Go(func() { ended <- t.send(first) })
	both.Go(func() {
		n, err := io.Copy(t.client.conn, t.upstream)
		p.counters.got.Add(uint64(n))
		ended <- err == nil && closeWrite(t.client.conn)
	})
	defer both.Wait()
	defer t.client.conn.Close()
	defer t.upstream.Close()
	for left := 2; left > 0; left-- {
		if !p.await(ctx, t.event, ended) {
			return
		}
	}
}

// await waits for one direction of event's connection, and reports whether it
// ended well: not because of ctx, and not because a new rule denies it.
func (p *Proxy) await(ctx context.Context, event Event, ended <-chan bool) bool {
	for {
		changed := p.cfg.Rules.next()
		if event.Reason != AllowedLoopback && p.cfg.Rules.verdict(event.Session, event.Host) == DeniedByRule {
			event.Reason, event.Waited = DeniedRevoked, 0
			p.note(event)
			return false
		}
		select {
		case well := <-ended:
			return well
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

func (t *tunnel) note(reason Reason) {
	event := t.event
	event.Reason, event.Waited = reason, 0
	t.client.p.note(event)
}

// send carries the client's output after first, its beginning, and reports
// whether it ended well.
func (t *tunnel) send(first []byte) bool {
	c := t.client
	if t.event.Host.Port != tlsPort && t.event.Reason != AllowedLoopback {
		var ok bool
		if first, ok = t.sniff(); !ok {
			return false
		}
	}
	n, err := t.upstream.Write(first)
	c.p.counters.sent.Add(uint64(n))
	for err == nil && c.br.Buffered() > 0 {
		var early []byte
		if early, err = c.br.Peek(c.br.Buffered()); err == nil {
			n, err = t.upstream.Write(early)
			c.br.Discard(n)
			c.p.counters.sent.Add(uint64(n))
		}
	}
	if err != nil {
		return false
	}
	rest, err := io.Copy(t.upstream, c.conn) // the sockets themselves, so that the kernel can splice
	c.p.counters.sent.Add(uint64(rest))
	return err == nil && closeWrite(t.upstream)
}

// inspect reads the ClientHello of a tunnel to port 443, and reports whether it
// may pass. It returns what it has read.
func (t *tunnel) inspect() (first []byte, ok bool) {
	first, name, err := t.client.readHello()
	reason := judgeHello(t.event.Host, name, err, true)
	if reason == "" {
		return first, true
	}
	t.note(reason)
	if reason != DeniedGone && reason != DeniedNotTLS {
		_, _ = t.client.conn.Write(accessDenied) // a client that is gone needs no alert
	}
	t.client.linger()
	return nil, false
}

// sniff waits for the first bytes of a tunnel to another port and reads a
// ClientHello if they begin one. It reports whether they may pass.
func (t *tunnel) sniff() (first []byte, ok bool) {
	c := t.client
	if b, err := c.br.Peek(1); err != nil || b[0] != recordHandshake {
		return nil, err == nil || errors.Is(err, io.EOF) // copying gets the same error
	}
	first, name, err := c.readHello()
	reason := judgeHello(t.event.Host, name, err, false)
	if reason == "" {
		return first, true
	}
	t.note(reason)
	return nil, false
}

// judgeHello returns why a connection to host may not pass, "" if it may. It
// begins with a ClientHello for name, or with what err says. strict, for port
// 443, requires TLS with a name.
func judgeHello(host hostname.Host, name string, err error, strict bool) Reason {
	var timeout net.Error
	switch {
	case errors.Is(err, errNotTLS):
		if strict {
			return DeniedNotTLS
		}
		return ""
	case errors.Is(err, errHello):
		return DeniedHello
	case errors.As(err, &timeout) && timeout.Timeout():
		return DeniedHelloTimeout
	case err != nil && (strict || !errors.Is(err, io.EOF)):
		return DeniedGone
	case err != nil:
		return "" // nothing follows what was read
	case name == "" && strict && !host.IsIP():
		return DeniedNoName
	case name == "":
		return ""
	}
	if named, err := hostname.ParseName(name); err != nil || named != host.WithPort(0) {
		return DeniedOtherName
	}
	return ""
}

// readHello reads a ClientHello, in any number of pieces, and returns it with
// its name. If it isn't one, it returns what was read.
func (c *client) readHello() (first []byte, name string, err error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return nil, "", err
	}
	for {
		name, err := serverName(first)
		if !errors.Is(err, errShort) {
			return first, name, errors.Join(err, c.conn.SetReadDeadline(time.Time{}))
		}
		if len(first) >= maxHelloBytes {
			return first, "", errHello
		}
		piece := make([]byte, min(2048, maxHelloBytes-len(first)))
		n, err := c.br.Read(piece)
		first = append(first, piece[:n]...)
		if n == 0 && err != nil {
			return first, "", err
		}
	}
}

// closeWrite passes on the end of a direction. It reports whether the other
// direction can continue.
func closeWrite(conn net.Conn) bool {
	half, ok := conn.(interface{ CloseWrite() error })
	return ok && half.CloseWrite() == nil
}

// dialFailure returns why dialling failed.
func dialFailure(err error) Reason {
	if protocol.KindOf(err) == protocol.KindForbidden {
		return DeniedPrivate
	}
	return FailedDial
}
