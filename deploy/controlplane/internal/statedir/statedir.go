// Package statedir finds the state directory of a control plane, and its database.
package statedir

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
)

// DatabaseFile is the database in a state directory.
const DatabaseFile = "controlplane.db"

// A Location says where a control plane keeps its state.
type Location struct {
	StateDir string // of signing keys, and of the database unless that is elsewhere
	Database string // URL or path, see [store.Open]; empty: a file in StateDir
}

// OpenStore opens the database, which takes the time from now; nil: from
// time.Now.
func (l Location) OpenStore(ctx context.Context, now func() time.Time) (*store.Store, error) {
	url := l.Database
	switch {
	case url != "":
	case l.StateDir != "":
		url = filepath.Join(l.StateDir, DatabaseFile)
	default:
		return nil, errors.New("neither a state directory nor a database is named")
	}
	return store.Open(ctx, url, now)
}
