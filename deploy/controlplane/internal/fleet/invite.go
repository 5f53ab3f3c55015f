package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/boards"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/private"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/statedir"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

// An InviteConfig says which sandbox to invite, and what to tell it.
type InviteConfig struct {
	statedir.Location // the control plane's

	Sandbox   protocol.SandboxID // empty: Count new ones
	Count     int
	Reach                     // empty: as whoever was invited or enrolled last
	Dashboard string          // bound to the sandbox; empty: none
	Owner     protocol.UserID // of a dashboard that is made for each new sandbox; empty: none is made
	TTL       time.Duration   // of the invitation
	Replace   bool            // let it enrol with another device key than the sandbox has
	Out       string          // file to write

	Now func() time.Time // nil: time.Now
}

// MaxInvitations bounds the sandboxes that are invited at once.
const MaxInvitations = 10000

// DefaultInvitationLife and MaxInvitationLife bound how long an invitation waits
// to be used.
const (
	DefaultInvitationLife = time.Hour
	MaxInvitationLife     = 30 * 24 * time.Hour
)

// Invite writes an invitation, for its owner alone: the sandbox that holds it
// may enrol once. An earlier one of the same sandbox is void. Invitations of
// several new sandboxes are one on each line.
func Invite(ctx context.Context, cfg InviteConfig) error {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.TTL <= 0 || cfg.TTL > MaxInvitationLife {
		return protocol.Errorf(protocol.KindInvalid, "an invitation lives from 1ns to %s", MaxInvitationLife)
	}
	if err := cfg.checkCount(); err != nil {
		return err
	}
	reached, err := cfg.reached()
	if err != nil {
		return err
	}
	text, invitations, err := cfg.make(reached)
	if err != nil {
		return err
	}
	if err := private.MakeDir(cfg.StateDir); err != nil {
		return err
	}
	out, err := program.PrepareFile(cfg.Out, text, private.Mode) // an invitation that nobody can read mustn't be stored
	if err != nil {
		return err
	}
	if err := cfg.store(ctx, invitations, reached); err != nil {
		return errors.Join(err, out.Discard())
	}
	return out.Commit()
}

// store makes the control plane know of the invitations.
func (cfg *InviteConfig) store(ctx context.Context, invitations []store.Invitation, reached reach) error {
	st, err := cfg.OpenStore(ctx, cfg.Now)
	if err != nil {
		return err
	}
	err = st.Fleet.AddInvitations(ctx, invitations, cfg.Owner)
	if err := errors.Join(err, st.Close()); err != nil {
		return err
	}
	return reached.save(cfg.StateDir)
}

// checkCount reports what of one sandbox and many doesn't go together.
func (cfg *InviteConfig) checkCount() error {
	one := cfg.Sandbox != ""
	switch {
	case one && cfg.Count != 0:
		return protocol.Errorf(protocol.KindInvalid, "either one sandbox is invited or a number of new ones")
	case !one && (cfg.Count < 1 || cfg.Count > MaxInvitations):
		return protocol.Errorf(protocol.KindInvalid, "from 1 to %d new sandboxes are invited at once", MaxInvitations)
	case one && cfg.Owner != "":
		return protocol.Errorf(protocol.KindInvalid, "dashboards are made for new sandboxes alone")
	case !one && cfg.Dashboard != "":
		return protocol.Errorf(protocol.KindInvalid, "a dashboard has one sandbox")
	}
	return nil
}

// reached returns what the sandboxes are told of where to go.
func (cfg *InviteConfig) reached() (reach, error) {
	if r := cfg.Reach; r.CA == "" && r.ServerName == "" && len(r.Relays) == 0 && r.RelayCA == "" {
		return loadReach(cfg.StateDir)
	}
	return cfg.Reach.read()
}

// make returns the invitations, as text and as they are stored.
func (cfg *InviteConfig) make(reached reach) (text []byte, invitations []store.Invitation, err error) {
	for range max(cfg.Count, 1) {
		i := protocol.Invitation{
			SandboxID: cfg.Sandbox, Token: "inv_" + strings.ToLower(rand.Text()),
			ControlPlane: reached.ControlPlane, Relays: reached.Relays, RelayCAPEM: reached.RelayCAPEM,
		}
		dashboard := cfg.Dashboard
		var data []byte
		if cfg.Sandbox == "" {
			i.SandboxID = protocol.NewSandboxID()
			if cfg.Owner != "" {
				dashboard = boards.NewID()
			}
			data, err = json.Marshal(i)
		} else {
			data, err = json.MarshalIndent(i, "", "  ")
		}
		if err != nil {
			return nil, nil, err
		}
		if _, err := protocol.ParseInvitation(data); err != nil { // what can't be read mustn't be written
			return nil, nil, err
		}
		text = append(append(text, data...), '\n')
		invitations = append(invitations, store.Invitation{
			Sandbox: i.SandboxID, Token: i.Token, Expires: cfg.Now().Add(cfg.TTL), Replace: cfg.Replace, Dashboard: dashboard,
		})
	}
	return text, invitations, nil
}
