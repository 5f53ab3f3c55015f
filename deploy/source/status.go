package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/source/internal/config"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

func declareStatus(c *program.Command) {
	c.Describe("Says what is paired and what was sent, here and as the sandbox has it.")
	command(c, func(ctx context.Context, r *run) error { return r.status(ctx) })
}

// A status is the answer of the command.
type status struct {
	User        string             `json:"user,omitempty"`
	Session     protocol.SessionID `json:"session,omitempty"`
	Paired      bool               `json:"paired"`
	Pairing     protocol.PairingID `json:"pairing,omitempty"`
	Fingerprint string             `json:"fingerprint,omitempty"`
	PairedAt    *time.Time         `json:"pairedAt,omitempty"`
	Browser     string             `json:"browser,omitempty"`
	Policy      string             `json:"policy"` // of accounts list; "unreadable"
	Domains     []string           `json:"domains"`
	Last        *config.Push       `json:"last,omitempty"`
	// Sandbox is what the sandbox says of this pairing, SandboxError why it says nothing.
	Sandbox      *op.SyncPairing `json:"sandbox,omitempty"`
	SandboxError string          `json:"sandboxError,omitempty"`
}

func (r *run) status(ctx context.Context) error {
	s, err := r.stand()
	if err != nil {
		return err
	}
	if s.Paired {
		s.Sandbox, err = r.there(ctx)
		if err != nil {
			s.SandboxError = err.Error()
		}
	}
	if r.asJSON {
		r.encode(s)
		return nil
	}
	if s.User != "" {
		r.aside("login     %s, session %s", s.User, s.Session)
	} else {
		r.aside("login     none")
	}
	if !s.Paired {
		r.aside("pairing   none (fairlead-source pair --site github.com)")
	} else {
		r.aside("pairing   fingerprint %s, since %s", s.Fingerprint, s.PairedAt.Local().Format(time.DateTime))
	}
	r.aside("browser   %s", s.Browser)
	if s.Paired {
		r.aside("policy    %s, %s", s.Policy, plural(len(s.Domains), "site"))
	}
	if s.Last != nil {
		r.aside("last push %s: %s sent, %d written", s.Last.At.Local().Format(time.DateTime), plural(s.Last.Cookies, "cookie"), s.Last.Written)
	}
	switch {
	case s.SandboxError != "":
		r.aside("sandbox   %s", s.SandboxError)
	case s.Sandbox != nil && s.Sandbox.Last != nil:
		r.aside("sandbox   had a push at %s", time.UnixMilli(s.Sandbox.Last.At).Format(time.DateTime))
	case s.Sandbox != nil:
		r.aside("sandbox   knows the pairing, and had no push yet")
	}
	return nil
}

// stand returns what is known here.
func (r *run) stand() (s status, err error) {
	who, err := r.dir.Login()
	if err != nil && !errors.Is(err, config.ErrNotLoggedIn) {
		return s, err
	}
	s.User, s.Session, s.Domains = who.User, who.Session, []string{}
	switch p, err := r.dir.Pairing(); {
	case err == nil:
		s.Paired, s.Pairing, s.Fingerprint, s.PairedAt = true, p.ID, p.Fingerprint, &p.PairedAt
	case !errors.Is(err, config.ErrNotPaired):
		return s, err
	}
	file, err := r.dir.Source()
	if err != nil {
		return s, err
	}
	if profile, err := (whose{}).find(file); err == nil {
		s.Browser = profile.String()
	} else {
		s.Browser = err.Error()
	}
	s.Policy = "unreadable"
	if policy, err := r.dir.Policy(); err == nil {
		sites, _ := policy.List()
		s.Policy, s.Domains = policy.Mode(), lines(sites)
	}
	state, err := r.dir.State()
	s.Last = state.Last
	return s, err
}

// there returns what the sandbox says of the pairing.
func (r *run) there(ctx context.Context) (*op.SyncPairing, error) {
	cp, _, err := r.login()
	if err != nil {
		return nil, err
	}
	p, err := r.dir.Pairing()
	if err != nil {
		return nil, err
	}
	s, err := r.dir.Source()
	if err != nil {
		return nil, err
	}
	state, err := cp.sync(ctx, p.Session, s.Sink.URL)
	if err != nil {
		return nil, err
	}
	for _, one := range state.Pairings {
		if one.ID == p.ID {
			return &one, nil
		}
	}
	return nil, fmt.Errorf("it knows no such pairing: it was ended there (fairlead-source unpair --local)")
}
