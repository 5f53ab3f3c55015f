package store

import (
	"context"
	"database/sql"
	"errors"
	"math"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// PutAuditHead stores a head that the sandbox's device key has signed. A head
// only moves forward: KindConflict says that the sequence goes back, or that
// the same record has another hash. Another device key begins another log.
func (s *Fleet) PutAuditHead(ctx context.Context, head protocol.AuditHead, signature []byte) error {
	if head.Sequence > math.MaxInt64 {
		return protocol.Errorf(protocol.KindInvalid, "the audit log's sequence is out of range")
	}
	if err := checkText("the hash", head.Hash); err != nil {
		return err
	}
	return s.db.Transact(ctx, func(tx db.Runner) error {
		device, err := deviceOf(ctx, tx, head.SandboxID)
		if err != nil {
			return err
		}
		if device == "" {
			return protocol.Errorf(protocol.KindForbidden, "the sandbox is not enrolled")
		}
		var sequence int64
		var hash string
		err = tx.Row(ctx, `SELECT sequence, hash FROM audit_heads WHERE sandbox_id = ? AND device_key = ?`,
			head.SandboxID, device).Scan(&sequence, &hash)
		switch {
		case errors.Is(err, sql.ErrNoRows):
		case err != nil:
			return err
		case int64(head.Sequence) < sequence:
			return protocol.Errorf(protocol.KindConflict, "the audit log went back from record %d to %d", sequence, head.Sequence)
		case int64(head.Sequence) == sequence && head.Hash != hash:
			return protocol.Errorf(protocol.KindConflict, "record %d of the audit log has another hash than before", sequence)
		}
		_, err = tx.Exec(ctx, `
			INSERT INTO audit_heads (sandbox_id, device_key, sequence, hash, at, signature) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (sandbox_id, device_key) DO UPDATE SET sequence = excluded.sequence, hash = excluded.hash,
				at = excluded.at, signature = excluded.signature`,
			head.SandboxID, device, int64(head.Sequence), head.Hash, head.At, signature)
		return err
	})
}

// AuditHead returns the newest head of a sandbox's audit log; KindNotFound if
// there is none.
func (s *Fleet) AuditHead(ctx context.Context, sandbox protocol.SandboxID) (AuditHead, error) {
	b, err := s.Sandbox(ctx, sandbox)
	if err == nil && b.Head.SandboxID == "" {
		err = absent(sql.ErrNoRows, "audit log")
	}
	return b.Head, err
}
