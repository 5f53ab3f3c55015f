package store

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// A Seed is what a development control plane starts with.
type Seed struct {
	Users      []SeedUser      `json:"users"`
	Dashboards []SeedDashboard `json:"dashboards"`
	Relays     []SeedRelay     `json:"relays"`
}

// A SeedDashboard has one session, in a sandbox of its own.
type SeedDashboard struct {
	ID        string             `json:"id"`
	Name      string             `json:"name,omitempty"` // empty: the id
	SandboxID protocol.SandboxID `json:"sandbox_id"`
	SessionID protocol.SessionID `json:"session_id"`
	Members   []SeedMember       `json:"members"`
}

// A SeedUser is a user with the token that stands for them.
type SeedUser struct {
	ID    protocol.UserID `json:"id"`
	Name  string          `json:"name"`
	Token string          `json:"token"`
}

// A SeedMember gives a user a role in the dashboard.
type SeedMember struct {
	UserID       protocol.UserID `json:"user_id"`
	Role         Role            `json:"role"`
	Capabilities string          `json:"capabilities,omitempty"` // separated by spaces; empty: all of the role
}

// formerEditor is a role of earlier seeds: an editor who can do nothing but type.
const formerEditor Role = "controller"

// standing returns what m is in terms of today.
func (m SeedMember) standing() (role Role, capabilities string, err error) {
	role, capabilities = m.Role, m.Capabilities
	if role == formerEditor {
		role = RoleEditor
		if capabilities == "" {
			capabilities = string(protocol.CapView + " " + protocol.CapControl)
		}
	}
	capabilities, err = normalCapabilities(capabilities)
	return role, capabilities, err
}

// A SeedRelay is a relay with the credential that stands for it.
type SeedRelay struct {
	ID         protocol.RelayID `json:"id"`
	Credential string           `json:"credential"`
}

// Validate reports the first thing in the seed that can't be right. It quotes
// no secret.
func (seed *Seed) Validate() error {
	users, secrets := make(map[protocol.UserID]bool), make(map[string]bool)
	secret := func(whose, s string) error {
		if len(s) < MinSecretBytes {
			return fmt.Errorf("the secret of %s is shorter than %d bytes", whose, MinSecretBytes)
		}
		if secrets[s] {
			return fmt.Errorf("the secret of %s is another's too", whose)
		}
		secrets[s] = true
		return nil
	}
	for _, u := range seed.Users {
		if (User{ID: u.ID, Name: u.Name}).check() != nil || users[u.ID] {
			return fmt.Errorf("user %q needs an id of their own and a name", u.ID)
		}
		users[u.ID] = true
		if err := secret("user "+string(u.ID), u.Token); err != nil {
			return err
		}
	}
	for _, d := range seed.Dashboards {
		if err := d.validate(users); err != nil {
			return fmt.Errorf("dashboard %q: %w", d.ID, err)
		}
	}
	for _, r := range seed.Relays {
		if !protocol.ValidID(r.ID) {
			return fmt.Errorf("relay id %q is not an id", r.ID)
		}
		if err := secret("relay "+string(r.ID), r.Credential); err != nil {
			return err
		}
	}
	return nil
}

func (d *SeedDashboard) validate(users map[protocol.UserID]bool) error {
	for _, id := range []struct{ field, id string }{
		{"id", d.ID}, {"sandbox_id", string(d.SandboxID)}, {"session_id", string(d.SessionID)},
	} {
		if !protocol.ValidID(id.id) {
			return fmt.Errorf("%s is not an id", id.field)
		}
	}
	if err := checkText("the name", d.Name); err != nil {
		return err
	}
	for _, m := range d.Members {
		role, _, err := m.standing()
		if err != nil {
			return err
		}
		if !users[m.UserID] || !role.Known() {
			return fmt.Errorf("member %q with role %q: want one of the users, and owner, editor or viewer", m.UserID, string(m.Role))
		}
	}
	return nil
}

// seedLabel marks the tokens that come from a seed.
const seedLabel = "seed"

// Load makes the store hold all that the seed says; what it holds beyond that
// stays. Loading the same seed again changes nothing.
func (s *Store) Load(ctx context.Context, seed *Seed) error {
	return s.db.Transact(ctx, func(tx db.Runner) error {
		var err error
		exec := func(query string, args ...any) {
			if err == nil {
				_, err = tx.Exec(ctx, query, args...)
			}
		}
		for _, u := range seed.Users {
			exec(`INSERT INTO users (id, name, created_at) VALUES (?, ?, ?)
				ON CONFLICT (id) DO UPDATE SET name = excluded.name, removed_at = NULL`, u.ID, u.Name, tx.Now().UnixMilli())
			exec(`DELETE FROM tokens WHERE user_id = ? AND label = ? AND token_hash <> ?`, u.ID, seedLabel, hashToken(u.Token))
			exec(`INSERT INTO tokens (token_hash, user_id, label, created_at) VALUES (?, ?, ?, ?)
				ON CONFLICT (token_hash) DO UPDATE SET user_id = excluded.user_id, label = excluded.label, expires_at = NULL`,
				hashToken(u.Token), u.ID, seedLabel, tx.Now().UnixMilli())
		}
		for _, d := range seed.Dashboards {
			d.load(exec, tx.Now().UnixMilli())
		}
		for _, r := range seed.Relays {
			exec(`INSERT INTO relays (id, credential_hash) VALUES (?, ?)
				ON CONFLICT (id) DO UPDATE SET credential_hash = excluded.credential_hash`,
				r.ID, hashToken(r.Credential))
		}
		return err
	})
}

func (d *SeedDashboard) load(exec func(query string, args ...any), now int64) {
	name := d.Name
	if name == "" {
		name = d.ID
	}
	exec(`INSERT INTO sandboxes (id) VALUES (?) ON CONFLICT (id) DO NOTHING`, d.SandboxID)
	exec(`INSERT INTO dashboards (id, name, sandbox_id, created_at) VALUES (?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET sandbox_id = excluded.sandbox_id, removed_at = NULL`, d.ID, name, d.SandboxID, now)
	exec(`INSERT INTO sessions (id, dashboard_id, state, created_at) VALUES (?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET dashboard_id = excluded.dashboard_id, state = excluded.state`,
		d.SessionID, d.ID, StateActive, now)
	for _, m := range d.Members {
		role, capabilities, _ := m.standing() // Validate has seen it
		exec(`INSERT INTO members (dashboard_id, user_id, role, capabilities) VALUES (?, ?, ?, ?)
			ON CONFLICT (dashboard_id, user_id) DO UPDATE SET role = excluded.role, capabilities = excluded.capabilities`,
			d.ID, m.UserID, role, capabilities)
	}
}
