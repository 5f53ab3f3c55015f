package store

import (
	"context"
	"database/sql"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// A Turn is one that a coding agent has finished in a terminal.
type Turn struct {
	Session     protocol.SessionID
	PTY         protocol.PTYID
	Agent       string
	At          time.Time // by the sandbox's clock
	Reason      protocol.StopReason
	LastMessage string
}

// MaxTurns bounds the turns that are kept of one terminal.
const MaxTurns = 100

// AddTurn keeps a turn, and no more than MaxTurns of its terminal. It reports
// whether the turn is new.
func (s *Sessions) AddTurn(ctx context.Context, t Turn) (bool, error) {
	var added int64
	err := s.db.Transact(ctx, func(tx db.Runner) error {
		var err error
		if added, err = tx.Exec(ctx, `
			INSERT INTO turns (session_id, pty_id, agent, at, reason, last_message) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (session_id, pty_id, at, agent) DO NOTHING`,
			t.Session, t.PTY, db.CleanText(t.Agent), t.At.UnixMilli(), string(t.Reason), db.CleanText(t.LastMessage)); err != nil || added == 0 {
			return err
		}
		_, err = tx.Exec(ctx, `
			DELETE FROM turns WHERE session_id = ? AND pty_id = ? AND at < (
				SELECT min(at) FROM (SELECT at FROM turns WHERE session_id = ? AND pty_id = ? ORDER BY at DESC LIMIT ?) AS newest)`,
			t.Session, t.PTY, t.Session, t.PTY, MaxTurns)
		return err
	})
	return added > 0, err
}

// Turns lists the turns of a session that are kept, of one terminal unless pty
// is empty, the newest first.
func (s *Sessions) Turns(ctx context.Context, session protocol.SessionID, pty protocol.PTYID, limit int) ([]Turn, error) {
	return db.Collect(ctx, s.db.Reads(), func(row db.Scanner) (t Turn, err error) {
		var at sql.NullInt64
		err = row.Scan(&t.Session, &t.PTY, &t.Agent, &at, &t.Reason, &t.LastMessage)
		t.At = db.TimeOf(at)
		return t, err
	}, `
		SELECT session_id, pty_id, agent, at, reason, last_message FROM turns
		WHERE session_id = ? AND (pty_id = ? OR ? = '') ORDER BY at DESC, pty_id, agent LIMIT ?`,
		session, pty, pty, limited(limit))
}
