package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/deploy/controlplane"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
)

const stateUsage = "`directory` of signing keys and database"

// A place is where the control plane's state is.
type place struct {
	stateDir string
	database string
}

// flags declares where the state is: the directory, and the database where that
// is elsewhere.
func (p *place) flags(c *program.Command) {
	c.String(&p.stateDir, "state-dir", "", stateUsage)
	databaseFlags(c, &p.database)
}

func databaseFlags(c *program.Command, database *string) {
	c.String(database, "database", "", "`URL` of the database, postgres://… or a file; empty: a file in --state-dir")
	c.Secret(database, "database", "the database's URL, since that may hold a password")
}

// use opens the store for f. The control plane may be running.
func (p *place) use(ctx context.Context, f func(*store.Store) error) error {
	if p.stateDir == "" && p.database == "" {
		return errors.New("--state-dir or --database is required")
	}
	st, err := controlplane.OpenStore(ctx, p.stateDir, p.database)
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

// knownUser, knownSession and knownDashboard fail when an id was named that
// nothing ever had: an empty list would hide a typing error.

func knownUser(ctx context.Context, st *store.Store, id string) error {
	if id == "" {
		return nil
	}
	return st.KnownUser(ctx, protocol.UserID(id))
}

func knownSession(ctx context.Context, st *store.Store, id string) error {
	if id == "" {
		return nil
	}
	return st.KnownSession(ctx, protocol.SessionID(id))
}

func knownDashboard(ctx context.Context, st *store.Store, id string) error {
	if id == "" {
		return nil
	}
	return st.KnownDashboard(ctx, id)
}
