// Package feature says what one part of the sandbox brings along, and holds all
// parts together.
//
// A feature is a value of its own package's type: whoever keeps the state. What it
// brings along are methods. It implements those of the interfaces here that
// concern it ([Router], [Operator], [Starter] and so on, and toolbox.Set,
// io.Closer and prometheus.Collector), and [Set.Add] finds them: that is the one
// place where anybody asks a value what it can do.
//
// A struct of functions would do as well. Methods need no second list of what
// there is, are never nil, and stay beside the state that they use; and the
// compiler checks what a feature says of itself:
//
//	var _ interface {
//		feature.Router
//		feature.Ender
//	} = (*Thing)(nil)
package feature

import (
	"context"
	"fmt"
	"maps"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

// A Run carries out a command. It is called once at most.
type Run func(context.Context) (protocol.OpResult, error)

// A Handler prepares a command whose op has been decoded into body. An error
// refuses the command: it counts as not begun.
type Handler func(command *jws.Command, body op.Body) (Run, error)

// Operations are the handlers of a feature, by the kind of operation.
type Operations map[string]Handler

// Add adds what others bring along. It panics when two features want the same
// operation, or one that package op doesn't know.
func (o Operations) Add(others ...Operations) Operations {
	for _, other := range others {
		for kind, handler := range other {
			if _, known := op.Lookup(kind); !known || o[kind] != nil {
				panic(fmt.Sprintf("feature: the operation %q is unknown, or has a handler", kind))
			}
			o[kind] = handler
		}
	}
	return maps.Clone(o)
}

// Do makes the handler of an operation with the body B that refuses nothing
// beforehand.
func Do[B op.Body](do func(ctx context.Context, command *jws.Command, body B) (protocol.OpResult, error)) Handler {
	return func(command *jws.Command, body op.Body) (Run, error) {
		return func(ctx context.Context) (protocol.OpResult, error) {
			return do(ctx, command, body.(B)) // package op has made it
		}, nil
	}
}

// Done is the result of an operation on the command's target.
func Done(command *jws.Command) protocol.OpResult {
	return protocol.OpResult{Kind: command.Kind(), SessionID: command.Target.SessionID, PTYID: command.Target.PTYID}
}
