package agentstream

import "context"

// A Life is a context that somebody ends. Its zero value isn't one: use NewLife.
type Life struct {
	context.Context
	end context.CancelFunc
}

// NewLife returns a life within parent. The caller must call End.
func NewLife(parent context.Context) Life {
	ctx, end := context.WithCancel(parent)
	return Life{ctx, end}
}

// End ends the life. It never blocks, and may be called again.
func (l Life) End() { l.end() }
