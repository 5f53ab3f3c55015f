package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/statedir"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

const stateUsage = "`directory` of signing keys and database"

// A location says where the control plane keeps its state.
type location struct{ statedir.Location }

// flags declares the state directory, and the database if it is not a file in it.
func (l *location) flags(c *program.Command) {
	c.String(&l.StateDir, "state-dir", "", stateUsage)
	databaseFlags(c, &l.Database)
}

func databaseFlags(c *program.Command, database *string) {
	c.String(database, "database", "", "`URL` of the database, postgres://… or a file; empty: a file in --state-dir")
	c.Secret(database, "database", "the database's URL, since that may hold a password")
}

// use opens the store for f. The control plane may be running.
func (l *location) use(ctx context.Context, f func(*store.Store) error) error {
	if l.StateDir == "" && l.Database == "" {
		return errors.New("--state-dir or --database is required")
	}
	st, err := l.OpenStore(ctx, nil)
	if err != nil {
		return err
	}
	return errors.Join(cause(f(st)), st.Close())
}

// cause shows an administrator why the database can't be asked, which nobody
// who comes by HTTP is told.
func cause(err error) error {
	if e, ok := errors.AsType[*protocol.Error](err); ok && e.Kind == protocol.KindUnavailable && e.Err != nil {
		return fmt.Errorf("%w: %w", err, e.Err)
	}
	return err
}

// find replaces names by ids, where there is a control plane already.
func (l *location) find(ctx context.Context, finders ...finder) error {
	if _, err := controlplane.ListKeys(l.StateDir, time.Now()); err != nil {
		return err
	}
	return l.use(ctx, func(st *store.Store) error { return find(ctx, st, finders...) })
}
