package store

import (
	"database/sql"
	"encoding/json"
	"slices"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// An ItemKind says what an item of a dashboard is.
type ItemKind string

const (
	ItemNote        ItemKind = "note"
	ItemTodo        ItemKind = "todo"
	ItemLayout      ItemKind = "layout"
	ItemBrowser     ItemKind = "browser"
	ItemTerminal    ItemKind = "terminal"
	ItemIntegration ItemKind = "integration"
	ItemEdge        ItemKind = "edge" // between two items
)

// ItemKinds lists every kind.
var ItemKinds = []ItemKind{ItemNote, ItemTodo, ItemLayout, ItemBrowser, ItemTerminal, ItemIntegration, ItemEdge}

// Known reports whether k is a kind.
func (k ItemKind) Known() bool { return slices.Contains(ItemKinds, k) }

// An Item is something that the members of a dashboard keep there.
type Item struct {
	ID        string
	Dashboard string
	Kind      ItemKind
	Body      json.RawMessage // valid JSON, at most MaxItemBytes
	Version   int64           // 1, and one more with each update
	UpdatedBy protocol.UserID
	UpdatedAt time.Time
}

const itemColumns = `SELECT id, dashboard_id, kind, body, version, updated_by, updated_at FROM items`

func scanItem(row db.Scanner) (i Item, err error) {
	var body []byte
	var updated sql.NullInt64
	err = row.Scan(&i.ID, &i.Dashboard, &i.Kind, &body, &i.Version, &i.UpdatedBy, &updated)
	i.Body, i.UpdatedAt = body, db.TimeOf(updated)
	return i, err
}
