package authority

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/controlplane"
	"github.com/fairlead/fairlead/sandbox-agent/internal/rendezvous"
	"github.com/fairlead/fairlead/tunnel"
)

// enrolPath is where the control plane takes invitations.
const enrolPath = "/enrol"

// EnrolOptions say what becomes of an invitation.
type EnrolOptions struct {
	Invitation string   // file
	StateDir   string   // where the device key is, or will be
	Enrolment  string   // file; not replaced where there is one
	Relays     []string // "host:port", tried as they are listed; default: the invitation's, in the sandbox's own order
	Carriers   []tunnel.Carrier
	Log        *slog.Logger
}

// Enrol exchanges an invitation for an enrolment and stores that, unless there
// is one already. While relays or the control plane are away it tries again
// until ctx ends, and tells each failure; an invitation that is refused is an
// error.
func Enrol(ctx context.Context, o EnrolOptions, tell func(protocol.Problem)) error {
	if _, err := os.Stat(o.Enrolment); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			o.Log.Info("enrolled already; the invitation isn't used", "enrolment", o.Enrolment)
		}
		return err
	}
	e, err := newEnrolling(o)
	if err != nil {
		return err
	}
	return e.run(ctx, tell)
}

// An enrolling exchanges one invitation.
type enrolling struct {
	options    EnrolOptions
	invitation *protocol.Invitation
	device     *jws.DeviceKey
	client     *controlplane.Client
	relays     []string
	relayTLS   *tls.Config
}

func newEnrolling(o EnrolOptions) (*enrolling, error) {
	data, err := readInvitation(o.Invitation)
	if err != nil {
		return nil, err
	}
	e := &enrolling{options: o, relays: o.Relays}
	if e.invitation, err = protocol.ParseInvitation(data); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Invitation, err)
	}
	if len(e.relays) == 0 {
		e.relays = rendezvous.Order(e.invitation.SandboxID, e.invitation.Relays)
	}
	if e.device, err = DeviceKey(o.StateDir); err != nil {
		return nil, err
	}
	if e.relayTLS, err = relayTLS(e.invitation.RelayCAPEM); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Invitation, err)
	}
	if e.client, err = controlplane.New(e.invitation.ControlPlane, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Invitation, err)
	}
	return e, nil
}

// readInvitation reads an invitation's file, as much of it as there may be.
func readInvitation(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("invitation: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, protocol.MaxEnrolmentBytes+1))
	if err != nil {
		return nil, fmt.Errorf("invitation: %w", err)
	}
	return data, nil
}

// run tries one relay after the other until the invitation is exchanged or
// refused.
func (e *enrolling) run(ctx context.Context, tell func(protocol.Problem)) error {
	log := e.options.Log.With("sandbox", e.invitation.SandboxID)
	var backoff controlplane.Backoff
	for i := 0; ; i++ {
		relay := e.relays[i%len(e.relays)]
		enrolment, err := e.exchange(ctx, relay)
		if err == nil {
			if err = storeEnrolment(e.options.Enrolment, enrolment); err == nil {
				log.Info("enrolled", "relay", relay)
			}
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if refused := e.refused(err); refused != nil {
			return refused
		}
		wait := backoff.Next()
		log.Warn("not enrolled yet", "relay", relay, "again_in", wait.Round(time.Millisecond), "err", err)
		tell(protocol.Problem{Name: protocol.ProblemCertificate, Message: "not enrolled yet: " + err.Error()})
		if err := pause.For(ctx, wait); err != nil {
			return err
		}
	}
}

// exchange tries once, through one relay.
func (e *enrolling) exchange(ctx context.Context, relay string) (*protocol.Enrolment, error) {
	ctx, cancel := context.WithTimeout(ctx, protocol.ConnectTimeout)
	defer cancel()
	way := func(ctx context.Context) (net.Conn, error) {
		return tunnel.Connect(ctx, tunnel.DialConfig{Addr: relay, TLS: e.relayTLS, Carriers: e.options.Carriers})
	}
	answer, err := e.client.Prove(ctx, way, enrolPath, func(exporter []byte) (any, error) {
		signature, err := e.device.Sign(protocol.EnrolTranscript(e.invitation.SandboxID, exporter))
		return protocol.EnrolRequest{
			SandboxID: e.invitation.SandboxID, Token: e.invitation.Token,
			DeviceKey: e.device.PublicJWK(), Signature: signature,
		}, err
	})
	if err != nil {
		return nil, e.discreet(err)
	}
	return checkEnrolment(answer, e.invitation.SandboxID, e.device)
}

// discreet replaces an error that quotes the token: errors are logged and shown.
func (e *enrolling) discreet(err error) error {
	if !strings.Contains(err.Error(), e.invitation.Token) {
		return err
	}
	said := protocol.Errorf(protocol.KindOf(err), "an answer that quotes the invitation's token")
	if controlplane.Refused(err) {
		return &controlplane.Refusal{Said: said}
	}
	return said
}

// refused returns what to say when the control plane refuses the invitation for
// good, nil for other errors. What a relay refuses may work later, or elsewhere.
func (e *enrolling) refused(err error) error {
	if !controlplane.Refused(err) {
		return nil
	}
	switch protocol.KindOf(err) {
	case protocol.KindUnauthenticated, protocol.KindConflict, protocol.KindForbidden, protocol.KindInvalid:
		return program.Hint(fmt.Errorf("the invitation %s for sandbox %s was refused: %w", e.options.Invitation, e.invitation.SandboxID, err),
			"an invitation can be used once, in its time; ask for another one: controlplane invite")
	}
	return nil
}
