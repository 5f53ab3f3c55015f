package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/controlplane"
	"github.com/fairlead/fairlead/tunnel"
)

// enrolPath is where the control plane takes invitations.
const enrolPath = "/enrol"

// Enrol exchanges cfg.Invitation for an enrolment and stores that, unless there
// is one already or there is no invitation. While relays or the control plane
// are away it tries again until ctx ends; an invitation that is refused is an
// error.
func Enrol(ctx context.Context, cfg Config) error {
	if cfg.Invitation == "" {
		return nil
	}
	if err := cfg.check(); err != nil {
		return err
	}
	if err := harden(); err != nil {
		return err
	}
	if _, err := os.Stat(cfg.Enrolment); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			cfg.Logger.Info("enrolled already; the invitation isn't used", "enrolment", cfg.Enrolment)
		}
		return err
	}
	e, err := newEnrolling(cfg)
	if err != nil {
		return err
	}
	return e.run(ctx)
}

// An enrolling exchanges one invitation.
type enrolling struct {
	cfg          Config
	invitation   *protocol.Invitation
	device       *jws.DeviceKey
	controlPlane *controlplane.Client
	relays       []string
	relayTLS     *tls.Config
}

func newEnrolling(cfg Config) (*enrolling, error) {
	data, err := readInvitation(cfg.Invitation)
	if err != nil {
		return nil, err
	}
	e := &enrolling{cfg: cfg, relays: cfg.Relays}
	if e.invitation, err = protocol.ParseInvitation(data); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Invitation, err)
	}
	if len(e.relays) == 0 {
		e.relays = e.invitation.Relays
	}
	if e.device, err = DeviceKey(cfg.StateDir); err != nil {
		return nil, err
	}
	roots, err := controlplane.CertPool(e.invitation.RelayCAPEM)
	if err != nil {
		return nil, fmt.Errorf("%s: relay_ca_pem: %w", cfg.Invitation, err)
	}
	e.relayTLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}
	if e.controlPlane, err = controlplane.New(e.invitation.ControlPlane, nil); err != nil {
		return nil, fmt.Errorf("%s: %w", cfg.Invitation, err)
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
func (e *enrolling) run(ctx context.Context) error {
	log := e.cfg.Logger.With("sandbox", e.invitation.SandboxID)
	var pause controlplane.Backoff
	for i := 0; ; i++ {
		relay := e.relays[i%len(e.relays)]
		enrolment, err := e.exchange(ctx, relay)
		if err == nil {
			if err = storeEnrolment(e.cfg.Enrolment, enrolment); err == nil {
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
		wait := pause.Next()
		log.Warn("not enrolled yet", "relay", relay, "again_in", wait.Round(time.Millisecond), "err", err)
		e.cfg.say(Status{Problems: []protocol.Problem{{
			Name: protocol.ProblemCertificate, Message: "not enrolled yet: " + err.Error(),
		}}})
		if err := controlplane.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// exchange tries once, through one relay.
func (e *enrolling) exchange(ctx context.Context, relay string) (*protocol.Enrolment, error) {
	ctx, cancel := context.WithTimeout(ctx, protocol.ConnectTimeout)
	defer cancel()
	way := func(ctx context.Context) (net.Conn, error) {
		return tunnel.Connect(ctx, tunnel.DialConfig{Addr: relay, TLS: e.relayTLS, Carriers: e.cfg.carriers()})
	}
	answer, err := e.controlPlane.Prove(ctx, way, enrolPath, func(exporter []byte) (any, error) {
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

// discreet keeps the token out of what others say of it.
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

// refused returns what to say of an error after which trying again is
// pointless, nil for others. Relays have no say in that: what they refuse may
// work later, or elsewhere.
func (e *enrolling) refused(err error) error {
	if !controlplane.Refused(err) {
		return nil
	}
	switch protocol.KindOf(err) {
	case protocol.KindUnauthenticated, protocol.KindConflict, protocol.KindForbidden, protocol.KindInvalid:
		return program.Hint(fmt.Errorf("the invitation %s for sandbox %s was refused: %w", e.cfg.Invitation, e.invitation.SandboxID, err),
			"an invitation can be used once, in its time; ask for another one: controlplane invite")
	}
	return nil
}

// storeEnrolment writes the enrolment, which is what New reads.
func storeEnrolment(path string, enrolment *protocol.Enrolment) error {
	data, err := json.MarshalIndent(enrolment, "", "  ")
	if err != nil {
		return err
	}
	if err := program.ReplaceFile(path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("enrolment: %w", err)
	}
	return nil
}

// checkEnrolment decodes an enrolment that the control plane sent, and makes
// sure that it is of use: for this sandbox and for its key.
func checkEnrolment(data []byte, sandbox protocol.SandboxID, device *jws.DeviceKey) (*protocol.Enrolment, error) {
	enrolment, err := protocol.ParseEnrolment(data)
	if err != nil {
		return nil, err
	}
	if enrolment.SandboxID != sandbox {
		return nil, fmt.Errorf("enrolment: for %s, not %s", enrolment.SandboxID, sandbox)
	}
	set, err := jws.ParseKeySet(enrolment.JWKS)
	if err != nil {
		return nil, fmt.Errorf("enrolment: jwks: %w", err)
	}
	cert, err := jws.NewKeys(set, jws.KeysOptions{}).Certificate(context.Background(), enrolment.Certificate)
	if err != nil {
		return nil, fmt.Errorf("enrolment: certificate: %w", err)
	}
	key, err := cert.PublicKey()
	if err != nil {
		return nil, err
	}
	own, err := (&jws.Certificate{JWK: device.PublicJWK()}).PublicKey()
	if err != nil {
		return nil, err
	}
	if cert.Subject != sandbox || !key.Equal(own) {
		return nil, errors.New("enrolment: its certificate is not for this sandbox and its key")
	}
	return enrolment, nil
}
