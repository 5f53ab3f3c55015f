package integrations

import (
	"context"
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
)

// tabsProvider names the shared tabs of people's own browsers among the
// providers of a terminal.
const tabsProvider = "tabs"

// Tabs are those of people's own browsers that are shared with sessions.
type Tabs interface {
	// Shared reports whether a session has any.
	Shared(ctx context.Context, session protocol.SessionID) (bool, error)
	// Run does an action of tabs. about says in a record what it was about.
	Run(ctx context.Context, session protocol.SessionID, action string, args json.RawMessage) (answer json.RawMessage, about string, err error)
}
