// Package store keeps the control plane's users, dashboards, sessions, grants,
// commands, sandboxes, revocations, relays and connected accounts in a database:
// an SQLite file, or Postgres.
//
// Each area of the control plane has a type of its own with what it reads and
// writes. The types share one schema, so that one transaction may change the
// tables of several areas: what removes a user takes their accounts too. The
// functions that do so take the transaction and belong to no type.
//
// Failures that a caller can do something about are [protocol.Error]s, of
// KindUnavailable while the database can't be asked; all others mean that the
// store itself failed. No error quotes a secret.
package store

import (
	"context"
	"database/sql"
	"embed"
	"io/fs"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
)

// A Store is the database by area. It and its parts are safe for concurrent use,
// by several processes too.
type Store struct {
	// Static after construction.
	db           *db.DB
	People       *People
	Boards       *Boards
	Contents     *Contents
	Sessions     *Sessions
	Grants       *Grants
	Commands     *Commands
	Integrations *Integrations
	Fleet        *Fleet
	Usage        *Usages
	Tabs         *Tabs
}

type (
	// People are users, what authenticates them, and who they are to OpenID
	// providers.
	People struct{ db *db.DB }
	// Boards are dashboards with their members and those invited.
	Boards struct{ db *db.DB }
	// Contents is what the members of a dashboard and their agents keep there:
	// items, tasks and memory.
	Contents struct{ db *db.DB }
	// Sessions are the sessions of dashboards, and the turns of the coding agents
	// in their terminals.
	Sessions struct{ db *db.DB }
	// Grants are the grants that were handed out, and the list of what is revoked.
	Grants struct{ db *db.DB }
	// Commands are signed commands and their outcomes.
	Commands struct{ db *db.DB }
	// Integrations are the accounts that users have connected, their attachments
	// to terminals, and what the gateway did with them.
	Integrations struct{ db *db.DB }
	// Fleet is the sandboxes with their keys and certificates, and the relays.
	Fleet struct{ db *db.DB }
	// Tabs are those of people's own browsers that are shared with sessions.
	Tabs struct{ db *db.DB }
	// Usages count what users did, by dashboard and day.
	Usages struct{ db *db.DB }
)

// Both sets have the same numbers and end in the same tables and columns.
//
//go:embed migrations
var migrations embed.FS

// Open opens the database at url and brings it to this build's schema: a
// "postgres://…" URL, or the path of an SQLite file, with or without "sqlite:"
// before it. A file that doesn't exist is made, for its owner alone. A pooler in
// front of Postgres must leave sessions whole: a migration holds a lock of one.
// The store takes the time from now, or from time.Now if that is nil.
func Open(ctx context.Context, url string, now func() time.Time) (*Store, error) {
	if now == nil {
		now = time.Now
	}
	schema, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	d, err := db.Open(ctx, url, schema, now)
	if err != nil {
		return nil, err
	}
	return &Store{
		db: d, People: &People{d}, Boards: &Boards{d}, Contents: &Contents{d}, Sessions: &Sessions{d},
		Grants: &Grants{d}, Commands: &Commands{d}, Integrations: &Integrations{d}, Fleet: &Fleet{d}, Usage: &Usages{d}, Tabs: &Tabs{d},
	}, nil
}

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// Ping asks the database something; KindUnavailable if it doesn't answer.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.db.Reads().Exists(ctx, `SELECT 1 FROM users LIMIT 1`)
	return err
}

// Stats returns how the connections for reading, and those for writing, are
// used.
func (s *Store) Stats() (read, write sql.DBStats) { return s.db.Stats() }
