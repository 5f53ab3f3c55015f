package executor

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// maxRevoked bounds the grants of one grant.revoke.
const maxRevoked = 1000

// An operation carries out a command.
type operation func(context.Context) (protocol.OpResult, error)

// parse returns the operation of a command. It fails with KindUnsupported for
// an unknown one, KindNotFound for a target that names too little, and
// KindInvalid for an op with members that it shouldn't have.
func (x *Executor) parse(command *jws.Command) (operation, error) {
	kind, target := command.Kind(), command.Target
	unsupported := protocol.Errorf(protocol.KindUnsupported, "unknown operation %.64q", kind)
	if _, known := protocol.OperationCapability[kind]; !known {
		return nil, unsupported
	}
	if kind == protocol.OpGrantRevoke {
		if x.Revoker == nil {
			return nil, unsupported
		}
		return x.parseRevoke(command)
	}
	if !protocol.ValidID(target.SessionID) {
		return nil, protocol.Errorf(protocol.KindNotFound, "the target names no session")
	}
	switch kind {
	case protocol.OpSessionCreate:
		return x.parseSessionCreate(command)
	case protocol.OpSessionDelete:
		return x.parseSessionDelete(command)
	case protocol.OpPTYCreate:
		return x.parseCreate(command)
	case protocol.OpEnvApply, protocol.OpEgressDecide, protocol.OpEgressRevoke, protocol.OpBrokerDecide,
		protocol.OpCDPSend, protocol.OpIntegrationsChanged:
		return x.parseService(command)
	}
	if !protocol.ValidID(target.PTYID) {
		return nil, protocol.Errorf(protocol.KindNotFound, "the target names no terminal")
	}
	switch kind {
	case protocol.OpAgentStart, protocol.OpAgentPause, protocol.OpAgentResume, protocol.OpAgentStop:
		if x.Agents == nil {
			return nil, unsupported
		}
		return x.parseAgent(command)
	case protocol.OpTerminalShare:
		if x.Sharer == nil {
			return nil, unsupported
		}
		return x.parseShare(command)
	}
	return x.parseTerminal(command)
}

// A plain op has no member but its kind.
type plain struct {
	Kind string `json:"kind"`
}

// decode reads the op of command into op, a pointer to a struct with Kind and
// the members that it may have.
func decode(command *jws.Command, op any) error {
	if err := protocol.UnmarshalStrict(command.Op, op); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "malformed %s", command.Kind())
	}
	return nil
}

// done is the result of an operation on command's target.
func done(command *jws.Command) protocol.OpResult {
	return protocol.OpResult{Kind: command.Kind(), SessionID: command.Target.SessionID, PTYID: command.Target.PTYID}
}

// parseService returns the operation of a command for a service of the sandbox,
// of which it may have none.
func (x *Executor) parseService(command *jws.Command) (operation, error) {
	switch command.Kind() {
	case protocol.OpEnvApply:
		if x.Environment == nil || x.OpenEnv == nil {
			break
		}
		return x.parseEnv(command)
	case protocol.OpCDPSend:
		if x.Browser != nil {
			return x.parseCDP(command)
		}
	case protocol.OpIntegrationsChanged:
		if x.IntegrationsChanged != nil {
			return x.parseIntegrationsChanged(command)
		}
	case protocol.OpBrokerDecide:
		if x.Approvals != nil && x.Broker != nil {
			return x.parseBrokerDecide(command)
		}
	default:
		if x.Approvals != nil && x.Egress != nil {
			return x.parseEgress(command)
		}
	}
	return nil, protocol.Errorf(protocol.KindUnsupported, "this sandbox has no %s", command.Kind())
}

// parseSessionCreate needs nothing but egress to be noted: a session exists as
// soon as the control plane signs for it.
func (x *Executor) parseSessionCreate(command *jws.Command) (operation, error) {
	var op struct {
		plain
		protocol.SessionCreate
	}
	if err := decode(command, &op); err != nil {
		return nil, err
	}
	if op.Egress != nil && x.Egress == nil {
		return nil, protocol.Errorf(protocol.KindUnsupported, "this sandbox has no egress proxy")
	}
	return func(context.Context) (protocol.OpResult, error) {
		if op.Egress == nil {
			return done(command), nil
		}
		return done(command), x.Egress.SetEnabled(command.Target.SessionID, op.Egress)
	}, nil
}

func (x *Executor) parseSessionDelete(command *jws.Command) (operation, error) {
	if err := decode(command, &plain{}); err != nil {
		return nil, err
	}
	return func(context.Context) (protocol.OpResult, error) {
		x.Terminals.CloseSession(command.Target.SessionID)
		if x.Ended != nil {
			x.Ended(command.Target.SessionID)
		}
		return done(command), nil
	}, nil
}

func (x *Executor) parseCreate(command *jws.Command) (operation, error) {
	var op struct {
		plain
		protocol.PTYCreate
	}
	if err := decode(command, &op); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (protocol.OpResult, error) {
		info, err := x.Terminals.Create(ctx, command.Target.SessionID, command.Target.PTYID, op.PTYCreate)
		result := done(command)
		result.PTYID = info.ID
		return result, err
	}, nil
}

func (x *Executor) parseTerminal(command *jws.Command) (operation, error) {
	session, id := command.Target.SessionID, command.Target.PTYID
	result := done(command)
	switch command.Kind() {
	case protocol.OpPTYSignal:
		var op struct {
			plain
			protocol.PTYSignal
		}
		return func(context.Context) (protocol.OpResult, error) {
			return result, x.Terminals.Signal(session, id, op.Signal)
		}, decode(command, &op)
	case protocol.OpPTYResize:
		var op struct {
			plain
			protocol.PTYResize
		}
		return func(context.Context) (protocol.OpResult, error) {
			return result, x.Terminals.Resize(session, id, op.Cols, op.Rows)
		}, decode(command, &op)
	}
	return func(context.Context) (protocol.OpResult, error) {
		var err error
		switch command.Kind() {
		case protocol.OpRecordStart:
			result.RecordingID, err = x.Recorder.StartRecording(session, id)
		case protocol.OpRecordStop:
			result.RecordingID, err = x.Recorder.StopRecording(session, id)
		default: // parse let nothing else through
			err = x.Terminals.Close(session, id)
		}
		return result, err
	}, decode(command, &plain{})
}

func (x *Executor) parseShare(command *jws.Command) (operation, error) {
	var op struct {
		plain
		protocol.TerminalShare
	}
	if err := decode(command, &op); err != nil {
		return nil, err
	}
	session, id := command.Target.SessionID, command.Target.PTYID
	if op.PTY != "" && op.PTY != id {
		return nil, protocol.Errorf(protocol.KindInvalid, "pty: not the target's terminal")
	}
	return func(context.Context) (protocol.OpResult, error) {
		result := done(command)
		result.With = op.With
		return result, x.Sharer.Share(session, id, op.With)
	}, nil
}

func (x *Executor) parseAgent(command *jws.Command) (operation, error) {
	session, id := command.Target.SessionID, command.Target.PTYID
	var start struct {
		plain
		protocol.AgentStart
	}
	var op any = &start
	if command.Kind() != protocol.OpAgentStart {
		op = &plain{}
	}
	if err := decode(command, op); err != nil {
		return nil, err
	}
	return func(ctx context.Context) (protocol.OpResult, error) {
		var report protocol.AgentReport
		var err error
		switch command.Kind() {
		case protocol.OpAgentStart:
			report, err = x.Agents.StartAgent(ctx, session, id, start.AgentStart)
		case protocol.OpAgentPause:
			report, err = x.Agents.PauseAgent(session, id)
		case protocol.OpAgentResume:
			report, err = x.Agents.ResumeAgent(session, id)
		default:
			report, err = x.Agents.StopAgent(ctx, session, id)
		}
		result := done(command)
		result.AgentState = report.State
		return result, err
	}, nil
}

func (x *Executor) parseRevoke(command *jws.Command) (operation, error) {
	var op struct {
		plain
		protocol.GrantRevoke
	}
	if err := decode(command, &op); err != nil {
		return nil, err
	}
	if len(op.Grants) == 0 || len(op.Grants) > maxRevoked {
		return nil, protocol.Errorf(protocol.KindInvalid, "grants: from 1 to %d", maxRevoked)
	}
	for _, id := range op.Grants {
		if !protocol.ValidID(id) {
			return nil, protocol.Errorf(protocol.KindInvalid, "grants: not an id")
		}
	}
	return func(context.Context) (protocol.OpResult, error) {
		return done(command), x.Revoker.Revoke(op.Grants)
	}, nil
}
