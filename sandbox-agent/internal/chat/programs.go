package chat

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/provider"
)

// Programs start the programs of providers, each session's as its own account.
type Programs interface {
	// Start starts a program. It fails with KindUnsupported, saying how to install
	// it, when the program is missing.
	Start(ctx context.Context, p Program) (Process, error)
	// Resumed reports whether a program that no Process is of has the provider's
	// session native open, as far as its arguments, its open files and the hooks of
	// terminals tell.
	Resumed(session protocol.SessionID, native string) bool
}

// A Program is one that is to be started.
type Program struct {
	Session      protocol.SessionID
	Conversation protocol.ConversationID
	Provider     string
	Command      provider.Command
	Dir          string // absolute; where it works
}

// A Process is a provider's program that runs.
type Process interface {
	// Write queues bytes for the program. It never blocks; it fails when the program
	// doesn't read, or has ended.
	Write(p []byte) error
	// CloseInput ends the program's input behind what is queued.
	CloseInput()
	// Line waits for the next line that the program prints, without its end. It
	// fails with io.EOF when the program has ended and all was taken, and with a
	// [LongLine], after which it goes on. A line is valid until the next call.
	Line() ([]byte, error)
	// Wait waits until the program has ended, and returns its exit code, and the end
	// of what it has printed as errors.
	Wait() (code int, stderr []byte)
	// End ends the program and all that it started: SIGINT, SIGTERM, SIGKILL. It
	// fails when something of that can't be ended. It may be called more than once.
	End(ctx context.Context) error
	// Close frees what the process holds. It is called last.
	Close()
	// Stale reports whether a program that is started now would find other
	// variables, secrets or logins.
	Stale() bool
}

// A LongLine is the length of a line of which nothing is kept.
type LongLine int

func (l LongLine) Error() string {
	return fmt.Sprintf("a line of %d bytes was dropped: it is too long", int(l))
}

// Assets keep the images of messages, and make URLs for them.
type Assets interface {
	// Put keeps an image of a session and returns its URL.
	Put(session protocol.SessionID, image protocol.ChatImage, content []byte) (url string, err error)
	// Get returns the image of a URL. It fails with KindNotFound for another
	// session's.
	Get(session protocol.SessionID, url string) (content []byte, mimeType string, err error)
}
