// Package enrol gives simulated agents their identities: it exchanges the
// control plane's invitations for certificates, as an agent does, and keeps
// them in a directory to be used again.
package enrol

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
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

const (
	enrolPath = "/enrol"
	// exporterBytes is the length of what binds a request to its connection.
	exporterBytes = 32
	// attemptTimeout bounds one exchange.
	attemptTimeout = 10 * time.Second
	// maxPause bounds the random pause before an exchange is tried again.
	maxPause = 3 * time.Second
	// DefaultAtOnce is how many exchanges are under way at a time.
	DefaultAtOnce = 16
)

// An Identity is who a simulated agent is.
type Identity struct {
	Device    *jws.DeviceKey
	Enrolment *protocol.Enrolment
}

// Options say how invitations are exchanged.
type Options struct {
	// ControlPlane is the address ("host:port") of the control plane's own TLS
	// listener. Empty: through the relays that the invitation names, which take
	// 20 a second from one address.
	ControlPlane string
	AtOnce       int                   // 0: DefaultAtOnce
	Attempts     int                   // for each invitation; 0: as many as ctx allows
	Progress     func(done, total int) // called from one goroutine at a time; nil: nobody
}

// ReadInvitations reads the invitations in the file at path: one, or one on each
// line, as "controlplane invite --count" writes them.
func ReadInvitations(path string) ([]*protocol.Invitation, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("invitations: %w", err)
	}
	defer f.Close()
	all, err := io.ReadAll(io.LimitReader(f, protocol.MaxEnrolmentBytes))
	if err != nil {
		return nil, fmt.Errorf("invitations: %w", err)
	}
	if i, err := protocol.ParseInvitation(all); err == nil {
		return []*protocol.Invitation{i}, nil
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("invitations: %w", err)
	}
	return parseLines(f)
}

func parseLines(r io.Reader) ([]*protocol.Invitation, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, protocol.MaxEnrolmentBytes)
	var list []*protocol.Invitation
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		i, err := protocol.ParseInvitation(lines.Bytes())
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		list = append(list, i)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("invitations: %w", err)
	}
	if len(list) == 0 {
		return nil, errors.New("invitations: there are none")
	}
	return list, nil
}

// Many exchanges invitations, each under a new device key. It returns the
// identities in the order of the invitations. While relays or the control plane
// refuse for the moment it tries again; the first invitation that is refused for
// good ends everything.
func Many(ctx context.Context, invitations []*protocol.Invitation, opts Options) ([]Identity, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	identities := make([]Identity, len(invitations))
	next := make(chan int)
	var workers sync.WaitGroup
	var mu sync.Mutex
	done := 0
	atOnce := opts.AtOnce
	if atOnce <= 0 {
		atOnce = DefaultAtOnce
	}
	for range min(atOnce, len(invitations)) {
		workers.Go(func() {
			for i := range next {
				identity, err := One(ctx, invitations[i], opts)
				if err != nil {
					cancel(fmt.Errorf("sandbox %s: %w", invitations[i].SandboxID, err))
					continue
				}
				mu.Lock()
				identities[i] = identity
				if done++; opts.Progress != nil {
					opts.Progress(done, len(invitations))
				}
				mu.Unlock()
			}
		})
	}
	for i := range invitations {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	if done < len(invitations) {
		return nil, context.Cause(ctx)
	}
	return identities, nil
}

// One exchanges one invitation, for a new device key.
func One(ctx context.Context, i *protocol.Invitation, opts Options) (Identity, error) {
	device, err := jws.GenerateDeviceKey()
	if err != nil {
		return Identity{}, err
	}
	for attempt := 0; ; attempt++ {
		e, err := exchange(ctx, i, device, opts.ControlPlane, attempt)
		if err == nil {
			return Identity{device, e}, nil
		}
		if ctx.Err() != nil {
			return Identity{}, context.Cause(ctx)
		}
		if refused(err) || attempt+1 == opts.Attempts {
			return Identity{}, err
		}
		pause := time.NewTimer(rand.N(min(maxPause, time.Duration(attempt+1)*maxPause/4)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return Identity{}, context.Cause(ctx)
		}
	}
}

// A refusal is what the control plane itself answered.
type refusal struct {
	status int
	kind   protocol.Kind
	said   string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the control plane answers %d: %s", r.status, r.said)
}

// refused reports whether trying again is pointless.
func refused(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && r.kind != protocol.KindTooMany && r.kind != protocol.KindUnavailable && r.kind != protocol.KindInternal
}

// exchange tries once, by one of the ways.
func exchange(ctx context.Context, i *protocol.Invitation, device *jws.DeviceKey, direct string, attempt int) (*protocol.Enrolment, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	raw, err := reach(ctx, i, direct, attempt)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	roots, err := pool(i.ControlPlane.CAPEM)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: i.ControlPlane.ServerName, MinVersion: tls.VersionTLS13})
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	state := conn.ConnectionState()
	exporter, err := state.ExportKeyingMaterial(protocol.ExporterLabel, nil, exporterBytes)
	if err != nil {
		return nil, err
	}
	signature, err := device.Sign(protocol.EnrolTranscript(i.SandboxID, exporter))
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(protocol.EnrolRequest{
		SandboxID: i.SandboxID, Token: i.Token, DeviceKey: device.PublicJWK(), Signature: signature,
	})
	if err != nil {
		return nil, err
	}
	answer, err := post(conn, i.ControlPlane.ServerName, body)
	if err != nil {
		return nil, err
	}
	e, err := protocol.ParseEnrolment(answer)
	if err == nil && e.SandboxID != i.SandboxID {
		err = fmt.Errorf("the enrolment is for %s", e.SandboxID)
	}
	return e, err
}

// reach opens a connection to the control plane.
func reach(ctx context.Context, i *protocol.Invitation, direct string, attempt int) (net.Conn, error) {
	if direct != "" {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", direct)
	}
	roots, err := pool(i.RelayCAPEM)
	if err != nil {
		return nil, err
	}
	return tunnel.Connect(ctx, tunnel.DialConfig{
		Addr: i.Relays[attempt%len(i.Relays)], TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13},
	})
}

// post sends body on conn and returns the answer.
func post(conn net.Conn, host string, body []byte) ([]byte, error) {
	req, err := http.NewRequest(http.MethodPost, "https://"+host+enrolPath, bytes.NewReader(body))
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
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, protocol.MaxEnrolmentBytes))
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, refusalOf(resp.StatusCode, answer)
	}
	return answer, nil
}

// refusalOf reads what an answer that is no enrolment says. Only the error's
// name is shown: what else an answer says may quote what was sent.
func refusalOf(status int, answer []byte) error {
	var said struct {
		Error protocol.ErrorBody `json:"error"`
	}
	r := &refusal{status: status, kind: protocol.KindUnavailable, said: "no error of ours"}
	if protocol.UnmarshalObject(answer, &said) == nil && said.Error.Name != "" {
		r.said, r.kind = said.Error.Name, protocol.KindByName(said.Error.Name)
	}
	switch {
	case status == http.StatusTooManyRequests:
		r.kind = protocol.KindTooMany
	case status >= http.StatusInternalServerError:
		r.kind = protocol.KindUnavailable
	}
	return r
}

func pool(text string) (*x509.CertPool, error) {
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM([]byte(text)) {
		return nil, errors.New("no certificate in it can be read")
	}
	return p, nil
}
