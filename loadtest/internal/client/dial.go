package client

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// handshakeTimeout bounds the opening of a socket.
const handshakeTimeout = 10 * time.Second

// A link is the sending side of a socket, and its end.
type link interface {
	// write sends whole frames without waiting for the peer.
	write(p []byte) error
	// close ends it; the receiver is told. Not to be called by the receiver.
	close()
	// begin lets the receiver be called, first with early.
	begin(early []byte) error
}

// A StatusError is an answer with another status than the one that was wanted.
type StatusError struct {
	What   string // the request
	Status int
	Body   string // its beginning
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s: status %d: %s", e.What, e.Status, strings.TrimSpace(e.Body))
}

// An opening says how a WebSocket is opened.
type opening struct {
	url          string
	origin       string
	subprotocols []string
	receive      int // size of the kernel's receive buffer in bytes; 0: its own choice
	rate         int // bytes per second that are read; 0: no limit
}

// openSocket opens a WebSocket. Nothing is received before the link's begin, which is
// to be called with early.
func (l *Loop) openSocket(ctx context.Context, o opening, to receiver) (k link, early []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	u, err := url.Parse(o.url)
	if err != nil {
		return nil, nil, fmt.Errorf("address of a socket: %w", err)
	}
	secure := u.Scheme == "wss" || u.Scheme == "https"
	raw, err := dial(ctx, u, secure, o.receive)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			raw.Close()
		}
	}()
	conn := raw
	if secure {
		conn = tls.Client(raw, &tls.Config{ServerName: u.Hostname(), NextProtos: []string{"http/1.1"}})
	}
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Now()) })
	early, err = upgrade(conn, u, o)
	if !stop() && err != nil {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, nil, err
	}
	raw.SetDeadline(time.Time{})
	if secure {
		return &pumped{conn: conn, to: to}, early, nil
	}
	fd, err := detach(raw.(*net.TCPConn))
	if err != nil {
		return nil, nil, err
	}
	return l.prepare(fd, to, o.rate), early, nil
}

func dial(ctx context.Context, u *url.URL, secure bool, receive int) (net.Conn, error) {
	host := u.Host
	if u.Port() == "" {
		port := "80"
		if secure {
			port = "443"
		}
		host = net.JoinHostPort(u.Hostname(), port)
	}
	dialer := net.Dialer{KeepAlive: -1}
	if receive > 0 {
		dialer.Control = func(_, _ string, c syscall.RawConn) error {
			var failed error
			err := c.Control(func(fd uintptr) {
				failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receive)
			})
			return errors.Join(err, failed)
		}
	}
	return dialer.DialContext(ctx, "tcp", host)
}

// upgrade makes a WebSocket of conn and returns what came behind the answer.
func upgrade(conn net.Conn, u *url.URL, o opening) ([]byte, error) {
	var nonce [16]byte
	rand.Read(nonce[:])
	key := base64.StdEncoding.EncodeToString(nonce[:])
	req := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: u.Path, RawQuery: u.RawQuery}, Host: u.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"},
			"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {key},
		},
	}
	if o.origin != "" {
		req.Header.Set("Origin", o.origin)
	}
	if len(o.subprotocols) > 0 {
		req.Header.Set("Sec-Websocket-Protocol", strings.Join(o.subprotocols, ", "))
	}
	if err := req.Write(conn); err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	in := bufio.NewReaderSize(conn, 4<<10)
	resp, err := http.ReadResponse(in, req)
	if err != nil {
		return nil, fmt.Errorf("opening a socket: %w", err)
	}
	defer resp.Body.Close() // it is the connection's, which goes on
	if resp.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return nil, &StatusError{"GET " + u.Path, resp.StatusCode, string(body)}
	}
	if resp.Header.Get("Sec-Websocket-Accept") != acceptOf(key) {
		return nil, errors.New("opening a socket: another key was accepted")
	}
	if len(o.subprotocols) > 0 && resp.Header.Get("Sec-Websocket-Protocol") != o.subprotocols[0] {
		return nil, fmt.Errorf("opening a socket: %s was not selected", o.subprotocols[0])
	}
	early := make([]byte, in.Buffered())
	_, err = io.ReadFull(in, early) // which is there
	return early, err
}

func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// detach takes the descriptor out of the hands of Go's runtime, which would
// wake for each arrival otherwise.
func detach(conn *net.TCPConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd, failed := -1, error(nil)
	err = raw.Control(func(old uintptr) {
		fd, failed = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err = errors.Join(err, failed); err != nil {
		return -1, fmt.Errorf("opening a socket: %w", err)
	}
	conn.Close() // the other descriptor keeps the connection
	return fd, nil
}

// A pumped socket is read by a goroutine of its own: TLS can't be read by a
// loop. It knows no rate.
type pumped struct {
	conn net.Conn
	to   receiver

	reading sync.Mutex // held while to is called
	over    bool       // guarded by reading
	writing sync.Mutex
}

// pumpBytes is the buffer of a pumped socket.
const pumpBytes = 4 << 10

func (s *pumped) begin(early []byte) error {
	if len(early) > 0 {
		s.reading.Lock()
		err := s.to.received(early, time.Now())
		s.reading.Unlock()
		if err != nil {
			return err
		}
	}
	go s.pump() // ends with the connection, which close closes
	return nil
}

func (s *pumped) pump() {
	quit := make(chan struct{})
	var sweeping sync.WaitGroup
	sweeping.Go(func() {
		ticker := time.NewTicker(sweepEvery)
		defer ticker.Stop()
		for {
			select {
			case now := <-ticker.C:
				s.reading.Lock()
				if !s.over {
					s.to.swept(now)
				}
				s.reading.Unlock()
			case <-quit:
				return
			}
		}
	})
	buf := make([]byte, pumpBytes)
	for {
		n, err := s.conn.Read(buf)
		if n > 0 {
			s.reading.Lock()
			failed := s.to.received(buf[:n], time.Now())
			s.reading.Unlock()
			err = errors.Join(failed, err)
		}
		if err != nil {
			close(quit)
			sweeping.Wait()
			s.end(err)
			return
		}
	}
}

// writeTimeout bounds a write, since whoever writes must not wait for long.
const writeTimeout = 5 * time.Second

func (s *pumped) write(p []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := s.conn.Write(p)
	return err
}

func (s *pumped) close() { s.end(errClosed) }

func (s *pumped) end(why error) {
	s.conn.Close()
	s.reading.Lock()
	defer s.reading.Unlock()
	if !s.over {
		s.over = true
		s.to.ended(why)
	}
}
