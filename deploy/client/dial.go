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
	"time"
)

// handshakeTimeout bounds the opening of a socket.
const handshakeTimeout = 10 * time.Second

// An opening says how a WebSocket is opened.
type opening struct {
	url          string
	origin       string
	subprotocols []string
	dial         DialFunc // nil: a net.Dialer
	tls          *tls.Config
	transport    Transport // nil: a goroutine
}

// openSocket opens a WebSocket. Nothing is received before the caller calls the
// link's Begin with early.
func openSocket(ctx context.Context, o opening, to Receiver) (k Link, early []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	u, err := url.Parse(o.url)
	if err != nil {
		return nil, nil, fmt.Errorf("address of a socket: %w", err)
	}
	secure := u.Scheme == "wss" || u.Scheme == "https"
	raw, err := dial(ctx, u, secure, o.dial)
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
		conn = tls.Client(raw, secured(o.tls, u.Hostname()))
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
	if tcp, ok := conn.(*net.TCPConn); ok && o.transport != nil {
		k, err = o.transport.Adopt(tcp, to)
		return k, early, err
	}
	return &pumped{conn: conn, to: to}, early, nil
}

func secured(base *tls.Config, host string) *tls.Config {
	if base == nil {
		base = &tls.Config{}
	}
	config := base.Clone()
	config.NextProtos = []string{"http/1.1"}
	if config.ServerName == "" {
		config.ServerName = host
	}
	return config
}

func dial(ctx context.Context, u *url.URL, secure bool, by DialFunc) (net.Conn, error) {
	host := u.Host
	if u.Port() == "" {
		port := "80"
		if secure {
			port = "443"
		}
		host = net.JoinHostPort(u.Hostname(), port)
	}
	if by == nil {
		by = (&net.Dialer{KeepAlive: -1}).DialContext
	}
	return by(ctx, "tcp", host)
}

// upgrade opens a WebSocket over conn and returns what came behind the answer.
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
	defer resp.Body.Close() // the connection stays open
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
	_, err = io.ReadFull(in, early) // already buffered
	return early, err
}

func acceptOf(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}
