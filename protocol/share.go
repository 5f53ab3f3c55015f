package protocol

import "fmt"

// A Share says which programs may read a terminal and type into it, besides
// those that run in it: none, those of one other terminal, which it names, or
// those of all terminals of the session. It doesn't affect people.
type Share string

const (
	ShareNone    Share = "none"    // the default
	ShareSession Share = "session" // the programs of all terminals of the session
)

// Valid reports whether s is one of the constants, or names a terminal.
func (s Share) Valid() bool { return ValidID(s) }

// Terminal returns the terminal that s names, "" for none.
func (s Share) Terminal() PTYID {
	if s == ShareNone || s == ShareSession {
		return ""
	}
	return PTYID(s)
}

// Opens reports whether s covers the programs of the terminal id. The empty
// Share is ShareNone.
func (s Share) Opens(id PTYID) bool {
	return s == ShareSession || id != "" && s.Terminal() == id
}

// Shared says to which programs the terminal is open from now on.
type Shared struct {
	With Share `json:"with"`
}

func (Shared) FrameType() FrameType { return FrameShared }

func (m Shared) check() error {
	if !m.With.Valid() {
		return fmt.Errorf("shared with %.64q", string(m.With))
	}
	return nil
}

// SharedMessage is "shared": to which programs the terminal is open.
type SharedMessage struct {
	With Share `json:"with"`
}

func (SharedMessage) serverType() string { return ServerShared }

// Address is an address that a program in a shell's terminal has printed, masked and
// normalized: for relays, and as "auth_url" for viewers.
type Address struct {
	URL      string `json:"url"`
	AutoOpen bool   `json:"auto_open,omitempty"` // the program asks for it to be opened
}

func (Address) FrameType() FrameType { return FrameAddress }
func (Address) check() error         { return nil }
func (Address) serverType() string   { return ServerAuthURL }
