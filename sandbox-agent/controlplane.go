package agent

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
	// maxAnswer bounds an answer, in bytes, and maxRefusal what is read of one
	// that says why not.
	maxAnswer  = protocol.MaxEnrolmentBytes
	maxRefusal = 4 << 10
	// exporterBytes is the length of what binds a request to its connection.
	exporterBytes = 32
	// idleConnection is how long a connection to the control plane is kept for
	// the next request.
	idleConnection = 30 * time.Second
)

// A reach opens a connection to the control plane, by whatever way there is.
// What goes through it is TLS of ours.
type reach func(ctx context.Context) (net.Conn, error)

// A controlPlane is who the agent believes: it is verified by the name and the
// authority that came with the enrolment or invitation, so that relays can
// neither read nor replace what it says.
type controlPlane struct {
	tls    *tls.Config
	client *http.Client // through tunnels

	// patient is client for requests whose callers say how long they wait: what
	// the control plane asks others for takes longer than what it knows.
	patient *http.Client
}

// newControlPlane returns the control plane that e describes, reached through
// tunnels by way.
func newControlPlane(e protocol.EnrolledControlPlane, way reach) (*controlPlane, error) {
	roots, err := certPool(e.CAPEM)
	if err != nil {
		return nil, fmt.Errorf("control_plane.ca_pem: %w", err)
	}
	c := &controlPlane{tls: &tls.Config{RootCAs: roots, ServerName: e.ServerName, MinVersion: tls.VersionTLS13}}
	c.client = &http.Client{
		Timeout: askTimeout,
		Transport: &http.Transport{
			DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return way(ctx) },
			TLSClientConfig: c.tls, TLSHandshakeTimeout: askTimeout,
			MaxConnsPerHost: 6, IdleConnTimeout: idleConnection,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.patient = &http.Client{Transport: c.client.Transport, CheckRedirect: c.client.CheckRedirect}
	return c, nil
}

// certPool returns the certificates in text, of which there must be one that
// can be used.
func certPool(text string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(text)) {
		return nil, errors.New("no certificate in it can be read")
	}
	return pool, nil
}

func (c *controlPlane) close() { c.client.CloseIdleConnections() }

func (c *controlPlane) url(path string) string { return "https://" + c.tls.ServerName + path }

// get fetches a document. A refusal is an *answerError.
func (c *controlPlane) get(ctx context.Context, path string) ([]byte, error) {
	return c.getUpTo(ctx, path, maxAnswer)
}

// getUpTo is get of an answer of so many bytes at most.
func (c *controlPlane) getUpTo(ctx context.Context, path string, most int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url(path), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	return read(resp, most)
}

// post sends a body of JSON. A refusal is an *answerError.
func (c *controlPlane) post(ctx context.Context, path string, header http.Header, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url(path), bytes.NewReader(body))
	if err != nil {
		return err
	}
	if header != nil {
		req.Header = header
	}
	req.Header.Set("Content-Type", "application/json")
	_, err = c.do(req)
	return err
}

func (c *controlPlane) do(req *http.Request) ([]byte, error) {
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	return read(resp, maxAnswer)
}

// prove posts what body makes of the keying material of the connection, on a
// connection of its own that way opens, and returns the answer. A refusal is an
// *answerError.
func (c *controlPlane) prove(ctx context.Context, way reach, path string, body func(exporter []byte) (any, error)) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	raw, err := way(ctx)
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
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url(path), bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
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

// read returns the body of a good answer, of so many bytes at most.
func read(resp *http.Response, most int64) ([]byte, error) {
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, refusal(resp)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("control plane: an answer over %d bytes", most)
	}
	return data, err
}

// An answerError is what the control plane itself says, beyond doubt: nobody on
// the way can have made it.
type answerError struct{ said *protocol.Error }

func (e *answerError) Error() string { return "control plane: " + e.said.Message }
func (e *answerError) Unwrap() error { return e.said }

// answered reports whether err is what the control plane itself said.
func answered(err error) bool {
	_, ok := errors.AsType[*answerError](err)
	return ok
}

// refusal returns an answer that isn't good as an *answerError.
func refusal(resp *http.Response) error {
	var body struct {
		Error protocol.ErrorBody `json:"error"`
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err == nil {
		err = json.Unmarshal(data, &body)
	}
	if err != nil || body.Error.Message == "" {
		body.Error.Message = fmt.Sprintf("status %d", resp.StatusCode)
	}
	return &answerError{protocol.Errorf(protocol.KindByStatus(resp.StatusCode), "%s", body.Error.Message)}
}
