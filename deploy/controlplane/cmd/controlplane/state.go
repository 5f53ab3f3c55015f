package main

import (
	"context"
	"errors"
	"fmt"
	"time"

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
	st, err := controlplane.OpenStore(ctx, p.stateDir, p.database, nil)
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

// find puts ids in the place of names, where there is a control plane already.
func (p *place) find(ctx context.Context, finders ...finder) error {
	if _, err := controlplane.ListKeys(p.stateDir, time.Now()); err != nil {
		return err
	}
	return p.use(ctx, func(st *store.Store) error { return find(ctx, st, finders...) })
}
