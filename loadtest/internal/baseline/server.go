// Package baseline is the barest program that could do what a relay does: a
// WebSocket wired straight to a terminal or to a program's pipes, a loop of one write per viewer and
// chunk, one QUIC stream, one TCP connection. Figures are compared with it, so
// it runs in a process of its own as a relay does.
package baseline

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/loadtest/internal/pattern"
)

// Role is the subcommand of loadtest that calls [Serve].
const Role = "baseline"

const (
	// startTimeout bounds the start of the process.
	startTimeout = 10 * time.Second
	// stopTimeout is how long the process may take to end.
	stopTimeout = 5 * time.Second
	// maxAnswer bounds an answer of the process, in bytes.
	maxAnswer = 1 << 20
)

// addresses are what the process says when it is ready, in one line of JSON.
type addresses struct {
	URL    string `json:"url"` // http://host:port/secret: it starts programs, so not everybody on the machine may ask
	TLS    string `json:"tls"` // the same by https
	TCP    string `json:"tcp"`
	QUIC   string `json:"quic"`
	Tunnel string `json:"tunnel"`
	CA     []byte `json:"ca"` // PEM, of TLS, QUIC and the tunnel
}

// A Server is a baseline process.
type Server struct {
	cmd    *exec.Cmd
	stdin  io.Closer // its end is the process's
	done   chan struct{}
	stderr bytes.Buffer // complete once done is closed
	at     addresses
	pool   *x509.CertPool
}

// Start starts the process from the executable self. Whoever starts it calls
// Stop. Should this process die, so does that one.
func Start(ctx context.Context, self string) (*Server, error) {
	s := &Server{done: make(chan struct{}), cmd: exec.Command(self, Role)}
	stdin, err := s.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	s.stdin = stdin
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stderr = &s.stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started, line := make(chan error, 1), make(chan []byte, 1)
	go func() { // Stop waits for done
		runtime.LockOSThread() // Pdeathsig fires when the thread that forked ends
		defer runtime.UnlockOSThread()
		if err := s.cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		first, _ := bufio.NewReader(io.LimitReader(out, maxAnswer)).ReadBytes('\n')
		line <- first
		s.cmd.Wait()
		close(s.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("baseline: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case first := <-line:
		err = s.ready(first)
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("baseline: %w: %s", err, bytes.TrimSpace(s.stderr.Bytes()))
	}
	return s, nil
}

func (s *Server) ready(line []byte) error {
	if err := json.Unmarshal(line, &s.at); err != nil {
		return errors.New("the process didn't start")
	}
	s.pool = x509.NewCertPool()
	if !s.pool.AppendCertsFromPEM(s.at.CA) {
		return errors.New("the process has no certificate")
	}
	return nil
}

// Stop ends the process.
func (s *Server) Stop() {
	s.stdin.Close()
	if s.cmd.Process == nil {
		return
	}
	select {
	case <-s.done:
	case <-time.After(stopTimeout):
		s.cmd.Process.Kill()
		<-s.done
	}
}

// PID returns the process's id.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// TerminalURL is a WebSocket (ws://) that starts command under sh in a terminal
// of its own: binary messages are its input and its output.
func (s *Server) TerminalURL(command string) string {
	return "ws" + strings.TrimPrefix(s.at.URL, "http") + "/terminal?command=" + url.QueryEscape(command)
}

// ViewerURL is a WebSocket (ws://) on which comes what [Server.Send] sends, one
// binary message for each chunk. What viewers say is read and dropped.
func (s *Server) ViewerURL() string {
	return "ws" + strings.TrimPrefix(s.at.URL, "http") + "/viewer"
}

// CommandURL takes POST requests, each of which is answered once a record of it
// is durable.
func (s *Server) CommandURL() string { return s.at.URL + "/command" }

// FilesURL takes PUT and GET of files by names below it, over TLS; a file is on the
// disk before the answer. PlainFilesURL is the same without TLS.
func (s *Server) FilesURL() string      { return s.at.TLS + "/files" }
func (s *Server) PlainFilesURL() string { return s.at.URL + "/files" }

// CA is the authority of the process's certificate, in PEM.
func (s *Server) CA() []byte { return s.at.CA }

// A Sent says what a call of Send did.
type Sent struct {
	Viewers int           `json:"viewers"` // at the start
	Chunks  int           `json:"chunks"`
	Writes  int           `json:"writes"`
	Gone    int           `json:"gone"` // viewers whose socket failed
	CPU     time.Duration `json:"cpu"`  // that the process used meanwhile, user and system
}

// Send has the loop write the stream of spec to everybody who views, each chunk
// when it is due, and returns when the last one is written.
func (s *Server) Send(ctx context.Context, spec pattern.Spec) (Sent, error) {
	var sent Sent
	body, err := json.Marshal(spec)
	if err != nil {
		return sent, err
	}
	return sent, s.post(ctx, "/send", body, &sent)
}

// Viewers returns how many sockets view at the moment.
func (s *Server) Viewers(ctx context.Context) (int, error) {
	var n int
	return n, s.post(ctx, "/viewers", nil, &n)
}

func (s *Server) post(ctx context.Context, path string, body []byte, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.at.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("baseline: %w", errors.Unwrap(err)) // without the URL
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("baseline: %w", err)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("baseline: %s: %s", resp.Status, bytes.TrimSpace(data))
	}
	return json.Unmarshal(data, answer)
}

// cpu returns what this process has used, user and system.
func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
