// Package syncdoor lets people's laptops push their browsers' cookies to a sandbox
// (seed 004): sealed, at an address that is a secret, without any other credential.
//
// A body is passed on as it comes. The relay keeps nothing of it, can't open it,
// and writes the address into no log, metric, trace or error: who knows it may push
// rubbish there, though nothing else.
package syncdoor

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/deploy/program/intake"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	// DefaultMaxBytes bounds a body.
	DefaultMaxBytes = 32 << 20

	// openTimeout bounds the wait for the sandbox's answer to OPEN.
	openTimeout = 10 * time.Second
	// answerTimeout bounds the wait for an answer once the sandbox has the body: it
	// may have to write a hundred thousand cookies.
	answerTimeout = 2 * time.Minute
	// maxAnswer and maxAnswerHeader bound the sandbox's answer, in bytes.
	maxAnswer       = 64 << 10
	maxAnswerHeader = 16 << 10
	// awayRetry is when a sandbox that isn't connected may be, in seconds.
	awayRetry = 10
)

// Tunnels finds the tunnel of a connected sandbox. Package fleet implements it.
type Tunnels interface {
	Session(id protocol.SandboxID) (*tunnel.Session, error)
}

// Options configure a Door. Tunnels and Log must be set.
type Options struct {
	Tunnels     Tunnels
	BehindProxy bool  // a proxy says where a request comes from, see intake.Address
	MaxBytes    int64 // of a body; 0: DefaultMaxBytes
	Metrics     *Metrics
	Log         *slog.Logger
}

// A Door serves the route.
type Door struct {
	// Static after construction.
	opts    Options
	limits  *limits
	lanes   *lanes
	streams *http.Transport
}

// New returns a Door.
func New(opts Options) *Door {
	if opts.MaxBytes == 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	return &Door{opts: opts, limits: newLimits(), lanes: newLanes(), streams: &http.Transport{
		DialContext: dial, DisableKeepAlives: true, DisableCompression: true,
		ResponseHeaderTimeout: answerTimeout, MaxResponseHeaderBytes: maxAnswerHeader,
	}}
}

// Register adds the route to router.
func (d *Door) Register(router access.Router) {
	router.HandleFunc("POST /sync/{sandbox}/{address}", d.push)
}

type sessionKey struct{}

// dial opens the stream for a request.
func dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	session := ctx.Value(sessionKey{}).(*tunnel.Session)
	stream, _, err := session.Open(ctx, protocol.LaneBulk, protocol.Open{Kind: protocol.StreamSync})
	if err != nil {
		return nil, err // not a nil *Stream in an interface
	}
	return stream, nil
}

// push is POST /sync/{sandbox}/{address}.
func (d *Door) push(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	err := d.forward(w, r)
	d.opts.Metrics.pushed(err, time.Since(began))
	if err == nil {
		return
	}
	var retry *retryError
	if errors.As(err, &retry) {
		w.Header().Set("Retry-After", strconv.Itoa(retry.seconds))
	}
	w.Header().Set("Connection", "close") // the rest of the body isn't waited for
	access.WriteError(w, err)
}

// forward has r answered by its sandbox. An error says that nothing was answered.
func (d *Door) forward(w http.ResponseWriter, r *http.Request) error {
	sandbox, address := protocol.SandboxID(r.PathValue("sandbox")), r.PathValue("address")
	if r.ContentLength > d.opts.MaxBytes {
		return tooLarge(d.opts.MaxBytes)
	}
	done, err := d.limits.enter(intake.Address(r, d.opts.BehindProxy), address, time.Now())
	if err != nil {
		return err
	}
	defer done()
	intake.Admitted(r) // the bounds here are its own
	session, err := d.opts.Tunnels.Session(sandbox)
	if err != nil {
		return &retryError{protocol.AsError(err), awayRetry}
	}
	if !op.ValidSyncAddress(address) {
		return protocol.Errorf(protocol.KindNotFound, "no such address")
	}
	at, leave := d.lanes.enter(r.Context(), sandbox)
	defer leave()
	return d.pass(w, r, session, op.SyncPath(sandbox, address), at)
}

// pass sends the body to path in the sandbox, and the answer back.
func (d *Door) pass(w http.ResponseWriter, r *http.Request, session *tunnel.Session, path string, at *place) error {
	http.NewResponseController(w).EnableFullDuplex() // an answer may come before the body's end; it fails where it isn't needed
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), sessionKey{}, session))
	defer cancel()
	body := newBody(w, r, d.opts.MaxBytes, at)
	defer body.leave()
	// Only what the sandbox needs is sent: no credential that a client has added, and
	// nothing that says who it is.
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://sandbox"+path, body)
	if err != nil {
		return protocol.Errorf(protocol.KindNotFound, "no such address") // err has the address
	}
	out.ContentLength = r.ContentLength
	out.Header.Set("Content-Type", "application/octet-stream")
	out.Header.Set("User-Agent", "")
	answer, err := d.streams.RoundTrip(out)
	if err != nil {
		return d.why(r, body, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err != nil || len(text) > maxAnswer || !answers[answer.StatusCode] {
		return d.why(r, body, protocol.Errorf(protocol.KindUpstream, "the sandbox's answer isn't one"))
	}
	if !body.whole() {
		w.Header().Set("Connection", "close")
	}
	relayed(w, answer, text)
	return nil
}

// answers are the statuses that a sandbox has for a push.
var answers = map[int]bool{
	http.StatusOK: true, http.StatusBadRequest: true, http.StatusUnauthorized: true, http.StatusNotFound: true, http.StatusMethodNotAllowed: true,
	http.StatusConflict: true, http.StatusRequestEntityTooLarge: true, http.StatusTooManyRequests: true, http.StatusInternalServerError: true,
	http.StatusNotImplemented: true, http.StatusServiceUnavailable: true, http.StatusInsufficientStorage: true,
}

// relayed answers with what the sandbox said. Of its header nothing passes that
// could do anything to a browser.
func relayed(w http.ResponseWriter, answer *http.Response, text []byte) {
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && seconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	w.Header().Set("Content-Security-Policy", "sandbox")
	access.WriteVerbatim(w, answer.StatusCode, text)
}

// why says why a body didn't get through, without its address.
func (d *Door) why(r *http.Request, body *body, err error) error {
	if failed := body.failed(); failed != nil {
		return failed
	}
	if r.Context().Err() != nil {
		return protocol.Errorf(protocol.KindInvalid, "the client has gone")
	}
	if e := protocol.AsError(err); e.Kind == protocol.KindTooMany || e.Kind == protocol.KindUnavailable {
		return &retryError{e, awayRetry}
	} else if e.Kind != protocol.KindInternal {
		return protocol.Errorf(e.Kind, "%s", e.Message)
	}
	d.opts.Log.Debug("a push did not reach its sandbox", "sandbox", r.PathValue("sandbox"))
	return protocol.Errorf(protocol.KindUpstream, "the sandbox gave no answer")
}
