// Package provider speaks the protocols of coding agents' programs: what to
// start, what to write to it, and what its output means. It knows no process, no
// file and no clock.
package provider

import (
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
)

// A Provider is one coding agent's program.
type Provider interface {
	// Name is how clients call it: "claude", "codex", …
	Name() string
	// Capabilities are what the program can do.
	Capabilities() Capabilities
	// Check refuses, with KindInvalid or KindUnsupported, what the provider can't do
	// as it is asked: a mode or images that it lacks. It never falls back silently.
	Check(s Start, t Turn) error
	// Command returns what to start for a conversation: what speaks the protocol of
	// Talk, or with s.InTerminal what people use themselves. Nothing of a message is
	// in it.
	Command(s Start) Command
	// Talk returns the protocol of one new process.
	Talk(s Start) Talk
}

// A Start says how a process works, for as long as it lives.
type Start struct {
	Native          string // the provider's id of the session to resume; "": a new one
	Dir             string // absolute; where it works
	Model           string // "": the provider's default
	Mode            string // permission mode; "": the provider's default
	AllowedTools    []string
	DisallowedTools []string
	SkipPermissions bool
	InTerminal      bool // people use it in a terminal; of the rest Native and Dir count alone
}

// A Command is a program with its arguments.
type Command struct {
	Program string // its name; found in the PATH of terminals
	Args    []string
	Env     []string // "NAME=value", beyond the environment of every terminal
	Install string   // what a person types to install it
}

// A Turn is one message of a person.
type Turn struct {
	ID               string // a UUID: the id of the message's event, and of its row where the provider lets us choose
	Content, Context string // what the person says; what the coding agent is told beside it, and people aren't: claude alone takes it
	Images           []Image
}

// An Image is one of a message's images, whose file the process can read.
type Image struct {
	Path     string // absolute
	MimeType string
	Data     []byte
}

// Talk is the protocol of one process, as a state machine: every method returns
// what is to be done, in order. It is not safe for concurrent use.
type Talk interface {
	// Begin is called once, when the process has started.
	Begin() []Effect
	// Send begins a turn. The last one is Done.
	Send(t Turn) []Effect
	// Line takes one line that the process has printed, without its end.
	Line(line []byte) []Effect
	// Answer answers a question. Unknown ones are ignored.
	Answer(question string, a Answer) []Effect
	// Abort stops the turn: Done follows if the process can do it by itself, and
	// soon. Stop is for one that can't.
	Abort() []Effect
	// End is called once, when the process has ended and all its lines were taken.
	// A turn that isn't done is done then. stderr is the end of what it has printed
	// there.
	End(exitCode int, stderr []byte) []Effect
	// Fits reports whether the process can do another turn as s says.
	Fits(s Start) bool
}

// An Answer answers a question.
type Answer struct {
	Allow        bool
	UpdatedInput json.RawMessage // nil: as asked
	Message      string          // why not, for the coding agent
}

// An Effect is something to do: one of the types below.
type Effect interface{ effect() }

type (
	// Write writes to the process.
	Write struct{ Bytes []byte }
	// CloseInput ends what can be written to the process.
	CloseInput struct{}
	// Emit is an event of the conversation, without SessionID, Timestamp, Provider
	// and Seq. Without an ID it gets one.
	Emit struct{ Event protocol.ChatEvent }
	// Native is the provider's own id of the session.
	Native struct{ ID string }
	// Ask asks a person whether a tool may be used.
	Ask struct {
		Question string // the provider's id of it
		Tool     string
		Input    json.RawMessage
		Context  json.RawMessage // what else the provider says of it; nil: nothing
		Forever  bool            // it waits without limit
	}
	// Withdraw takes back a question.
	Withdraw struct{ Question string }
	// Stop ends the process by signals: nothing else stops its turn.
	Stop struct{}
	// Done ends the turn. The process may do another one unless Last.
	Done struct {
		ExitCode int
		Last     bool
	}
)

func (Write) effect()      {}
func (CloseInput) effect() {}
func (Emit) effect()       {}
func (Native) effect()     {}
func (Ask) effect()        {}
func (Withdraw) effect()   {}
func (Stop) effect()       {}
func (Done) effect()       {}

// Capabilities are what a provider can do (seed 002).
type Capabilities struct {
	Provider                   string   `json:"provider"`
	PermissionModes            []string `json:"permissionModes"` // in the order in which a client cycles
	DefaultPermissionMode      string   `json:"defaultPermissionMode"`
	SupportsImages             bool     `json:"supportsImages"`
	SupportsAbort              bool     `json:"supportsAbort"`
	SupportsPermissionRequests bool     `json:"supportsPermissionRequests"`
	SupportsTokenUsage         bool     `json:"supportsTokenUsage"`
}
