package tools

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// maxBoardAnswer bounds a list that an action answers with; the rest is to be
// had with "after".
const maxBoardAnswer = 512 << 10

// A board is a dashboard with whoever works on it.
type board struct {
	contents  *store.Contents
	dashboard string
	by        protocol.UserID // AgentHolder: a program in the sandbox
	readOnly  error           // why they may not write; nil: they may
}

// An action works on a board with arguments, a JSON object.
type action func(ctx context.Context, b *board, args json.RawMessage) (any, error)

// reads returns an action whose arguments are those of A.
func reads[A any](run func(context.Context, *board, *A) (any, error)) action {
	return func(ctx context.Context, b *board, raw json.RawMessage) (any, error) {
		args := new(A)
		if err := protocol.UnmarshalStrict(raw, args); err != nil {
			return nil, protocol.Errorf(protocol.KindInvalid, "arguments: %s", strings.TrimPrefix(err.Error(), "json: "))
		}
		return run(ctx, b, args)
	}
}

// writes is reads for an action that changes something.
func writes[A any](run func(context.Context, *board, *A) (any, error)) action {
	read := reads(run)
	return func(ctx context.Context, b *board, raw json.RawMessage) (any, error) {
		if b.readOnly != nil {
			return nil, b.readOnly
		}
		return read(ctx, b, raw)
	}
}

// A cut is part of a list.
type cut[T any] struct {
	list []T
	next string // to be named as "after" for the rest; empty: there is none
}

// part returns what fits an answer of all that comes behind the one of the id
// after, or of all if that is empty.
func part[S, T any](all []S, after string, id func(S) string, out func(S) T) (cut[T], error) {
	if after != "" {
		found := false
		for i, one := range all {
			if found = id(one) == after; found {
				all = all[i+1:]
				break
			}
		}
		if !found {
			return cut[T]{}, protocol.Errorf(protocol.KindNotFound, "after: no such id")
		}
	}
	c := cut[T]{list: []T{}}
	size := 0
	for i, one := range all {
		shown := out(one)
		data, err := json.Marshal(shown)
		if err != nil {
			return c, err
		}
		if size += len(data); size > maxBoardAnswer && i > 0 {
			c.next = id(all[i-1])
			break
		}
		c.list = append(c.list, shown)
	}
	return c, nil
}
