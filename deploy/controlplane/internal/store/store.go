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
	"time"
)

// A Store is the database by area. It and its parts are safe for concurrent use,
// by several processes too.
type Store struct {
	// Static after construction.
	db           *database
	People       *People
	Boards       *Boards
	Contents     *Contents
	Sessions     *Sessions
	Grants       *Grants
	Commands     *Commands
	Integrations *Integrations
	Fleet        *Fleet
	Usage        *Usages
}

type (
	// People are users, what authenticates them, and who they are to OpenID
	// providers.
	People struct{ db *database }
	// Boards are dashboards with their members and those invited.
	Boards struct{ db *database }
	// Contents is what the members of a dashboard and their agents keep there:
	// items, tasks and memory.
	Contents struct{ db *database }
	// Sessions are the sessions of dashboards, and the turns of the coding agents
	// in their terminals.
	Sessions struct{ db *database }
	// Grants are the grants that were handed out, and the list of what is revoked.
	Grants struct{ db *database }
	// Commands are signed commands and their outcomes.
	Commands struct{ db *database }
	// Integrations are the accounts that users have connected, their attachments
	// to terminals, and what the gateway did with them.
	Integrations struct{ db *database }
	// Fleet is the sandboxes with their keys and certificates, and the relays.
	Fleet struct{ db *database }
	// Usages count what users did, by dashboard and day.
	Usages struct{ db *database }
)

// An Option changes how a store works.
type Option func(*database)

// WithClock has the store take the time from now instead of time.Now.
func WithClock(now func() time.Time) Option { return func(db *database) { db.clock = now } }

// Open opens the database at url and brings it to this build's schema: a
// "postgres://…" URL, or the path of an SQLite file, with or without "sqlite:"
// before it. A file that doesn't exist is made, for its owner alone. A pooler in
// front of Postgres must leave sessions whole: a migration holds a lock of one.
func Open(ctx context.Context, url string, options ...Option) (*Store, error) {
	db, err := openDatabase(ctx, url)
	if err != nil {
		return nil, err
	}
	for _, option := range options {
		option(db)
	}
	return &Store{
		db: db, People: &People{db}, Boards: &Boards{db}, Contents: &Contents{db}, Sessions: &Sessions{db},
		Grants: &Grants{db}, Commands: &Commands{db}, Integrations: &Integrations{db}, Fleet: &Fleet{db}, Usage: &Usages{db},
	}, nil
}

// Close closes the database.
func (s *Store) Close() error { return s.db.close() }

// Ping asks the database something; KindUnavailable if it doesn't answer.
func (s *Store) Ping(ctx context.Context) error {
	_, err := s.db.reads().exists(ctx, `SELECT 1 FROM users LIMIT 1`)
	return err
}

// Stats returns how the connections for reading, and those for writing, are
// used.
func (s *Store) Stats() (read, write sql.DBStats) { return s.db.read.Stats(), s.db.write.Stats() }
