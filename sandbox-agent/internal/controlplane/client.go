// Package controlplane is the sandbox's client of its control plane, over
// connections that others carry.
package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// askTimeout bounds one request to the control plane.
	askTimeout = 10 * time.Second
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = protocol.MaxEnrolmentBytes
	// exporterBytes is the length of what binds a request to its connection.
	exporterBytes = 32
	// idleConnection is how long a connection to the control plane is kept for
	// the next request.
	idleConnection = 30 * time.Second
)

// Dial opens a connection to the control plane. The client runs its own TLS
// inside, so relays on the way can neither read nor change what is said.
type Dial func(ctx context.Context) (net.Conn, error)

// A Client sends requests to the control plane. It believes only a server with
// the name and the authority that came with the enrolment or the invitation.
type Client struct {
	tls  *tls.Config
	http *http.Client
}

// New returns a client of the control plane that e describes. Prove takes a
// Dial of its own: who calls nothing else may pass nil.
func New(e protocol.EnrolledControlPlane, dial Dial) (*Client, error) {
	roots, err := CertPool(e.CAPEM)
	if err != nil {
		return nil, fmt.Errorf("control_plane.ca_pem: %w", err)
	}
	c := &Client{tls: &tls.Config{RootCAs: roots, ServerName: e.ServerName, MinVersion: tls.VersionTLS13}}
	c.http = &http.Client{
		Transport: &http.Transport{
			DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
			TLSClientConfig: c.tls, TLSHandshakeTimeout: askTimeout,
			MaxConnsPerHost: 6, IdleConnTimeout: idleConnection,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// CertPool returns the certificates in text. It fails when none can be read.
func CertPool(text string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(text)) {
		return nil, errors.New("no certificate in it can be read")
	}
	return pool, nil
}

// Close closes the connections that are kept for later requests.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get fetches a document of at most most bytes. The control plane's refusal is
// a *[Refusal].
func (c *Client) Get(ctx context.Context, path string, most int64) ([]byte, error) {
	return c.ask(ctx, http.MethodGet, path, nil, nil, most)
}

// Post sends a body of JSON. The control plane's refusal is a *[Refusal].
func (c *Client) Post(ctx context.Context, path string, header http.Header, body []byte) error {
	_, err := c.ask(ctx, http.MethodPost, path, header, body, maxAnswer)
	return err
}

func (c *Client) ask(ctx context.Context, method, path string, header http.Header, body []byte, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	resp, err := c.send(ctx, method, path, header, body)
	if err != nil {
		return nil, err
	}
	return read(resp, most)
}

// Call sends a request and returns the answer of at most most bytes, whatever
// its status. ctx alone bounds its time, since the control plane may have to ask
// others.
func (c *Client) Call(ctx context.Context, method, target string, header http.Header, body []byte, most int64) ([]byte, int, error) {
	resp, err := c.send(ctx, method, target, header, body)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	answer, err := readUpTo(resp, most)
	return answer, resp.StatusCode, err
}

func (c *Client) send(ctx context.Context, method, target string, header http.Header, body []byte) (*http.Response, error) {
	req, err := c.request(ctx, method, target, header, body)
	if err != nil {
		return nil, err
	}
	return c.http.Do(req)
}

// request makes a request whose target is a path, perhaps with a query. It
// keeps header.
func (c *Client) request(ctx context.Context, method, target string, header http.Header, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, "https://"+c.tls.ServerName+target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// Prove posts what body makes of the keying material of the connection, on a
// connection of its own that dial opens, and returns the answer. So nobody can
// use the body on another connection. The control plane's refusal is a
// *[Refusal].
func (c *Client) Prove(ctx context.Context, dial Dial, path string, body func(exporter []byte) (any, error)) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	raw, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	conn := tls.Client(raw, c.tls)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	state := conn.ConnectionState()
	exporter, err := state.ExportKeyingMaterial(protocol.ExporterLabel, nil, exporterBytes)
	if err != nil {
		return nil, err
	}
	message, err := body(exporter)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	req, err := c.request(ctx, http.MethodPost, path, nil, data)
	if err != nil {
		return nil, err
	}
	req.Close = true
	if err := req.Write(conn); err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	return read(resp, maxAnswer)
}

// read returns the body of a good answer, of at most most bytes.
func read(resp *http.Response, most int64) ([]byte, error) {
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, refusal(resp)
	}
	return readUpTo(resp, most)
}

func readUpTo(resp *http.Response, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("control plane: an answer over %d bytes", most)
	}
	return data, err
}
