package approval

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
)

// A Pending waits for an answer.
type Pending struct{ question *question }

// ID returns the approval's id.
func (p *Pending) ID() string { return p.question.approval.ID }

// Wait returns the answer. AllowOnce and Deny are for those who wait when
// somebody decides: later callers ask anew. A question stays open even if
// nobody waits any more. With every error the answer is Deny: KindExpired if
// nobody decided in time, KindUnavailable if the Log was closed, or the cause
// of ctx's end.
func (p *Pending) Wait(ctx context.Context) (protocol.Decision, error) {
	outcome, err := p.Outcome(ctx)
	if err != nil {
		return protocol.Deny, err
	}
	return outcome.Approval.Decision, nil
}

// Approval returns the question as it was asked, without its input.
func (p *Pending) Approval() protocol.Approval { return p.question.approval }

// Outcome waits until somebody has decided. It fails with KindExpired if nobody
// did in time, KindEnded if the question was cancelled, KindUnavailable if the
// Log was closed, or with the cause of ctx's end.
func (p *Pending) Outcome(ctx context.Context) (Outcome, error) {
	select {
	case <-p.question.settled:
		return p.question.outcome, p.question.err
	default:
	}
	select {
	case <-p.question.settled:
		return p.question.outcome, p.question.err
	case <-ctx.Done():
		return Outcome{Approval: p.question.approval}, context.Cause(ctx)
	}
}
