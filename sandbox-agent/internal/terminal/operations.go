package terminal

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

// An Operator does what signed commands want done with terminals. [Host] is one.
type Operator interface {
	// Create starts a terminal under id, or under an id of its own choice.
	Create(ctx context.Context, session protocol.SessionID, id protocol.PTYID, create op.PTYCreate) (protocol.PTYInfo, error)
	Close(session protocol.SessionID, id protocol.PTYID) error
	Signal(session protocol.SessionID, id protocol.PTYID, signal string) error
	Resize(session protocol.SessionID, id protocol.PTYID, cols, rows int) error
	// Share opens a terminal to the programs of others.
	Share(session protocol.SessionID, id protocol.PTYID, with protocol.Share) error

	// StartRecording and StopRecording return the id of the recording.
	StartRecording(session protocol.SessionID, id protocol.PTYID) (recording string, err error)
	StopRecording(session protocol.SessionID, id protocol.PTYID) (recording string, err error)

	// StartAgent returns when the agent's program runs.
	StartAgent(ctx context.Context, session protocol.SessionID, id protocol.PTYID, start op.AgentStart) (protocol.AgentReport, error)
	// PauseAgent stops the agent's processes, ResumeAgent continues them.
	PauseAgent(session protocol.SessionID, id protocol.PTYID) (protocol.AgentReport, error)
	ResumeAgent(session protocol.SessionID, id protocol.PTYID) (protocol.AgentReport, error)
	// StopAgent ends the agent's processes and returns when they have ended.
	StopAgent(ctx context.Context, session protocol.SessionID, id protocol.PTYID) (protocol.AgentReport, error)
}

// Operations are those on terminals and on the coding agents in front of them.
func Operations(o Operator) feature.Operations {
	return feature.Operations{
		op.KindPTYCreate: feature.Do(func(ctx context.Context, c *jws.Command, body *op.PTYCreate) (protocol.OpResult, error) {
			target := c.Target
			if err := body.Complete(&target); err != nil {
				return protocol.OpResult{}, err
			}
			info, err := o.Create(ctx, target.SessionID, target.PTYID, *body)
			result := feature.Done(c)
			result.PTYID = info.ID
			return result, err
		}),
		op.KindPTYClose: onTerminal(o.Close),
		op.KindPTYSignal: feature.Do(func(_ context.Context, c *jws.Command, body *op.PTYSignal) (protocol.OpResult, error) {
			return feature.Done(c), o.Signal(c.Target.SessionID, c.Target.PTYID, body.Signal)
		}),
		op.KindPTYResize: feature.Do(func(_ context.Context, c *jws.Command, body *op.PTYResize) (protocol.OpResult, error) {
			return feature.Done(c), o.Resize(c.Target.SessionID, c.Target.PTYID, body.Cols, body.Rows)
		}),
		op.KindTerminalShare: share(o),
		op.KindRecordStart:   recordingOf(o.StartRecording),
		op.KindRecordStop:    recordingOf(o.StopRecording),
		op.KindAgentStart: feature.Do(func(ctx context.Context, c *jws.Command, body *op.AgentStart) (protocol.OpResult, error) {
			report, err := o.StartAgent(ctx, c.Target.SessionID, c.Target.PTYID, *body)
			return reported(c, report), err
		}),
		op.KindAgentPause:  steering(o.PauseAgent),
		op.KindAgentResume: steering(o.ResumeAgent),
		op.KindAgentStop: feature.Do(func(ctx context.Context, c *jws.Command, _ *op.Plain) (protocol.OpResult, error) {
			report, err := o.StopAgent(ctx, c.Target.SessionID, c.Target.PTYID)
			return reported(c, report), err
		}),
	}
}

func onTerminal(do func(protocol.SessionID, protocol.PTYID) error) feature.Handler {
	return feature.Do(func(_ context.Context, c *jws.Command, _ *op.Plain) (protocol.OpResult, error) {
		return feature.Done(c), do(c.Target.SessionID, c.Target.PTYID)
	})
}

func recordingOf(do func(protocol.SessionID, protocol.PTYID) (string, error)) feature.Handler {
	return feature.Do(func(_ context.Context, c *jws.Command, _ *op.Plain) (result protocol.OpResult, err error) {
		result = feature.Done(c)
		result.RecordingID, err = do(c.Target.SessionID, c.Target.PTYID)
		return result, err
	})
}

func steering(do func(protocol.SessionID, protocol.PTYID) (protocol.AgentReport, error)) feature.Handler {
	return feature.Do(func(_ context.Context, c *jws.Command, _ *op.Plain) (protocol.OpResult, error) {
		report, err := do(c.Target.SessionID, c.Target.PTYID)
		return reported(c, report), err
	})
}

func reported(c *jws.Command, report protocol.AgentReport) protocol.OpResult {
	result := feature.Done(c)
	result.AgentState = report.State
	return result
}

func share(o Operator) feature.Handler {
	run := feature.Do(func(_ context.Context, c *jws.Command, body *op.TerminalShare) (protocol.OpResult, error) {
		result := feature.Done(c)
		result.With = body.With
		return result, o.Share(c.Target.SessionID, c.Target.PTYID, body.With)
	})
	return func(c *jws.Command, body op.Body) (feature.Run, error) {
		if b := body.(*op.TerminalShare); b.PTY != "" && b.PTY != c.Target.PTYID {
			return nil, protocol.Errorf(protocol.KindInvalid, "pty: not the target's terminal")
		}
		return run(c, body)
	}
}
