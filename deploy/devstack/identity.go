package devstack

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

// An identity is who and what a stack consists of. It is made once and kept in
// the state directory, so that a second start is the same stack.
type identity struct {
	Users     []user            `json:"users"`
	Sandboxes []sandboxIdentity `json:"sandboxes"`
	Relays    []relayIdentity   `json:"relays"`
}

type user struct {
	ID    protocol.UserID `json:"id"`
	Name  string          `json:"name"`
	Role  string          `json:"role"` // owner, controller, viewer
	Token string          `json:"token"`
}

type sandboxIdentity struct {
	ID        protocol.SandboxID `json:"id"`
	Session   protocol.SessionID `json:"session_id"`
	Dashboard string             `json:"dashboard_id"`
}

type relayIdentity struct {
	ID         protocol.RelayID `json:"id"`
	Credential string           `json:"credential"`
	Secret     string           `json:"secret"`
}

// loadIdentity reads the stack's identity from dir, and completes it to the
// wanted number of relays, sandboxes, and people beside the three of every stack.
func loadIdentity(dir string, relays, sandboxes, more int) (*identity, error) {
	path := filepath.Join(dir, "identity.json")
	id := &identity{}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		for _, u := range people {
			id.add(u)
		}
	case err != nil:
		return nil, fmt.Errorf("the stack's identity: %w", err)
	default:
		err := protocol.UnmarshalStrict(data, id)
		if err == nil {
			err = id.check()
		}
		if err != nil {
			return nil, program.Hint(fmt.Errorf("the stack's identity %s: %w", path, err),
				"without the state directory a new stack begins")
		}
	}
	for len(id.Users) < len(people)+more {
		id.add(onlooker(len(id.Users) - len(people)))
	}
	for len(id.Relays) < relays {
		id.Relays = append(id.Relays, relayIdentity{protocol.NewRelayID(), "rc_" + rand.Text(), rand.Text()})
	}
	for len(id.Sandboxes) < sandboxes {
		id.Sandboxes = append(id.Sandboxes, sandboxIdentity{
			protocol.NewSandboxID(), protocol.NewSessionID(), "dash_" + strings.ToLower(rand.Text()),
		})
	}
	if data, err = json.MarshalIndent(id, "", "  "); err != nil {
		return nil, err
	}
	return id, program.ReplaceFile(path, data, 0o600)
}

// people are the users of every stack, but for ids and tokens.
var people = []user{{Name: "alice", Role: "owner"}, {Name: "bob", Role: "controller"}, {Name: "carol", Role: "viewer"}}

// MaxPeople bounds the members beside those of every stack.
const MaxPeople = 10_000

// onlooker returns member i beside the people of every stack, but for id and
// token.
func onlooker(i int) user { return user{Name: fmt.Sprintf("p%d", i+1), Role: "viewer"} }

// add gives u an id and a token.
func (id *identity) add(u user) {
	u.ID, u.Token = protocol.NewUserID(), "ut_"+rand.Text()
	id.Users = append(id.Users, u)
}

// check reports what can't be right in an identity that was read. It quotes no
// secret.
func (id *identity) check() error {
	for i := range max(len(people), len(id.Users)) {
		p := onlooker(i - len(people))
		if i < len(people) {
			p = people[i]
		}
		var u user
		if i < len(id.Users) {
			u = id.Users[i]
		}
		if u.Name != p.Name || u.Role != p.Role || !protocol.ValidID(u.ID) || len(u.Token) < minSecret {
			return fmt.Errorf("no %s %s with an id and a token", p.Role, p.Name)
		}
	}
	for i, s := range id.Sandboxes {
		if !protocol.ValidID(s.ID) || !protocol.ValidID(s.Session) || !protocol.ValidID(s.Dashboard) {
			return fmt.Errorf("sandbox %d lacks an id", i+1)
		}
	}
	for i, r := range id.Relays {
		if !protocol.ValidID(r.ID) || len(r.Credential) < minSecret || len(r.Secret) < minSecret {
			return fmt.Errorf("relay %d lacks an id or a secret", i+1)
		}
	}
	return nil
}

// minSecret is the shortest token, credential or secret, in bytes.
const minSecret = 16

// user returns the user of a name.
func (id *identity) user(name string) user {
	for _, u := range id.Users {
		if u.Name == name {
			return u
		}
	}
	return user{}
}
