package executor

import (
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

// prepare returns what carries out a command, and what it waits for. It fails with
// KindUnsupported for an operation that nobody here carries out, with KindNotFound
// for a target that names too little, and with what [op.Decode] or the handler
// says.
func (x *Executor) prepare(command *jws.Command) (feature.Run, op.Lane, error) {
	spec, known := op.Lookup(command.Kind())
	if !known {
		return nil, 0, protocol.Errorf(protocol.KindUnsupported, "unknown operation %.64q", command.Kind())
	}
	switch {
	case spec.Target != op.TargetSandbox && !protocol.ValidID(command.Target.SessionID):
		return nil, 0, protocol.Errorf(protocol.KindNotFound, "the target names no session")
	case spec.Target == op.TargetTerminal && !protocol.ValidID(command.Target.PTYID):
		return nil, 0, protocol.Errorf(protocol.KindNotFound, "the target names no terminal")
	}
	handler := x.Operations[spec.Kind]
	if handler == nil {
		return nil, 0, protocol.Errorf(protocol.KindUnsupported, "this sandbox has no %s", spec.Kind)
	}
	_, body, err := op.Decode(command.Op)
	if err != nil {
		return nil, 0, err
	}
	run, err := handler(command, body)
	return run, spec.Lane, err
}
