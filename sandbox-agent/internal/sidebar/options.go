package sidebar

import (
	"context"
	"log/slog"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chat"
	"github.com/fairlead/fairlead/sandbox-agent/internal/mask"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/activity"
	"github.com/fairlead/fairlead/sandbox-agent/internal/sidebar/lineup"
)

// Conversations are the sandbox's. Package chat has them.
type Conversations interface {
	Create(chat.ConversationInfo) (chat.ConversationInfo, error)
	// Say begins a run, as chat.send does. Of context only the coding agent knows.
	Say(command *jws.Command, body *op.ChatSend, context string) error
	// MayStop returns why a user may not stop a conversation's run.
	MayStop(protocol.SessionID, protocol.ConversationID, protocol.UserID) error
	Stop(protocol.SessionID, protocol.ConversationID, protocol.UserID) error
	// Listen hears a conversation's events behind one; math.MaxUint64: from now on.
	Listen(session protocol.SessionID, id protocol.ConversationID, after uint64) (Listening, protocol.ChatState, error)
}

// A Listening hears events. Package chat says more.
type Listening interface {
	// Next returns the next one, also when ctx has ended if it is there already.
	Next(ctx context.Context) (protocol.ChatEvent, error)
	Close()
}

// A Browser has the tabs that people see in a session's own browser. Its calls don't
// wait, but for Tabs.
type Browser interface {
	// Tabs returns them, none while no browser runs.
	Tabs(context.Context, protocol.SessionID) []BrowserTab
	// Closed reports whether there was such a tab, and never will be again.
	Closed(protocol.SessionID, lineup.Tab) bool
	// Active returns the active tab, or what the next one will be called.
	Active(protocol.SessionID) lineup.Tab
	// Switch makes an open tab the active one. Of others it does nothing.
	Switch(protocol.SessionID, lineup.Tab)
}

// A BrowserTab is one of them.
type BrowserTab struct {
	ID         lineup.Tab
	URL, Title string
}

// Options say how side panels work.
type Options struct {
	Dir           string // holds a file for each session
	Workspace     string // absolute; where the agents work
	Conversations Conversations
	Browser       Browser
	Activity      *activity.Log
	Tools         []string           // that need no question
	Revoked       *jws.RevocationSet // nil: nothing is
	Secrets       *mask.Secrets      // nil: nothing is hidden
	Log           *slog.Logger
}
