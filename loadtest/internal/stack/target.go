// Package stack finds the deployment that a run loads: one that runs already, or
// a development stack started for the run.
package stack

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// A Target is a running deployment and who may do what in it. It holds tokens:
// it is never logged.
type Target struct {
	Relays       []Relay            `json:"relays"`
	ControlPlane Process            `json:"control_plane"`
	Sandboxes    []Sandbox          `json:"sandboxes"`
	Session      protocol.SessionID `json:"session_id"`
	PTY          protocol.PTYID     `json:"pty_id"`
	Users        map[string]User    `json:"users"`
	Extension    Extension          `json:"extension"`
	Revision     string             `json:"revision"`

	// Dir is the state directory of a stack of this machine, empty elsewhere.
	Dir string `json:"-"`
}

// A Relay is one of a deployment's relays. What isn't known is empty: without
// AdminURL its metrics can't be read, without PID not its memory.
type Relay struct {
	URL      string `json:"url"`    // public origin
	Tunnel   string `json:"tunnel"` // host:port for agents
	AdminURL string `json:"admin_url"`
	PID      int    `json:"pid"`
}

// A Process is a program of a deployment.
type Process struct {
	URL      string `json:"url"`
	AdminURL string `json:"admin_url"`
	PID      int    `json:"pid"`
}

// A Sandbox is one of a deployment's sandboxes.
type Sandbox struct {
	ID       protocol.SandboxID `json:"id"`
	PID      int                `json:"pid"`
	StateDir string             `json:"state_dir"`
	Session  protocol.SessionID `json:"session_id"`
	PTY      protocol.PTYID     `json:"pty_id"`
}

// An Extension is that of browsers, unpacked on this machine; empty: there is none.
type Extension struct {
	ID  string `json:"id"`
	Dir string `json:"dir"`
}

// A User is somebody with a token.
type User struct {
	ID    protocol.UserID `json:"id"`
	Token string          `json:"token"`
}

// maxTargetBytes bounds a target file.
const maxTargetBytes = 16 << 20

// Load reads a target from a file like the ready file of devstack.
func Load(path string) (*Target, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	if info.Size() > maxTargetBytes {
		return nil, fmt.Errorf("target: %s is larger than %d bytes", path, maxTargetBytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("target: %w", err)
	}
	var t Target
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, fmt.Errorf("target: %s: %w", path, err)
	}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("target: %s: %w", path, err)
	}
	return &t, nil
}

// Flags describe a deployment on a command line.
type Flags struct {
	URL       string
	Token     string
	Session   string
	AdminURLs []string // of the relays, in no order
}

// FromFlags returns the target that flags describe.
func FromFlags(f Flags) (*Target, error) {
	switch {
	case f.Token == "":
		return nil, errors.New("--url needs --token-file, a token of somebody who may open terminals in the session")
	case f.Session == "":
		return nil, errors.New("--url needs --session, the id of the session to load")
	}
	t := &Target{
		Relays:  []Relay{{URL: strings.TrimRight(f.URL, "/")}},
		Session: protocol.SessionID(f.Session),
		Users:   map[string]User{owner: {Token: f.Token}},
	}
	for i, admin := range f.AdminURLs {
		if i >= len(t.Relays) {
			t.Relays = append(t.Relays, Relay{URL: t.Relays[0].URL})
		}
		t.Relays[i].AdminURL = strings.TrimRight(admin, "/")
	}
	return t, t.check()
}

func (t *Target) check() error {
	if len(t.Relays) == 0 {
		return errors.New("names no relay")
	}
	for _, r := range t.Relays {
		for _, address := range []string{r.URL, r.AdminURL} {
			u, err := url.Parse(address)
			if address != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
				return fmt.Errorf("%q is no http:// or https:// address", address)
			}
		}
		if r.URL == "" {
			return errors.New("a relay has no url")
		}
	}
	if t.Session == "" {
		return errors.New("names no session_id")
	}
	if len(t.Users) == 0 {
		return errors.New("names no users")
	}
	return nil
}

// owner is who controls the first terminal of a development stack.
const owner = "alice"

// Owner returns the user who opens terminals: alice, or the first by name.
func (t *Target) Owner() User {
	if u, ok := t.Users[owner]; ok {
		return u
	}
	names := make([]string, 0, len(t.Users))
	for name := range t.Users {
		names = append(names, name)
	}
	slices.Sort(names)
	return t.Users[names[0]]
}

// Others returns the users beside the owner by name, those of numbered names, of
// whom there may be thousands, last and in the order of their numbers.
func (t *Target) Others() []User {
	owner := t.Owner()
	var names []string
	for name, u := range t.Users {
		if u.Token != owner.Token {
			names = append(names, name)
		}
	}
	number := func(name string) int {
		n, err := strconv.Atoi(strings.TrimPrefix(name, "p"))
		if err != nil || !strings.HasPrefix(name, "p") {
			return 0
		}
		return n
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(number(a), number(b)), cmp.Compare(a, b)) })
	var others []User
	for _, name := range names {
		others = append(others, t.Users[name])
	}
	return others
}

// SandboxPID returns the process of the first sandbox's agent, 0 if it isn't
// known.
func (t *Target) SandboxPID() int {
	if len(t.Sandboxes) == 0 {
		return 0
	}
	return t.Sandboxes[0].PID
}
