package approval

import (
	"context"
	"log/slog"
	"net"
	"strconv"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

// A Decider keeps the sandbox's approvals. [Log] is one.
type Decider interface {
	// List returns the approvals of a session.
	List(session protocol.SessionID) protocol.ApprovalList
	// Decide answers an approval. It uses answer's ID, Revision, Kind, SessionID,
	// Decision, UserID, GrantID and CommandID. It returns the approval's present
	// state, and whether this answer decided it.
	Decide(answer protocol.Approval) (as protocol.Approval, applied bool, err error)
	// DecideTool is Decide for a tool's approval. It uses answer's Remember, too;
	// with is for whoever has asked.
	DecideTool(answer protocol.Approval, with Reply) (as protocol.Approval, applied bool, err error)
}

// EgressRules say which hosts sessions may reach.
type EgressRules interface {
	// Decide makes a rule of a session: AllowAlways or DenyAlways for a host,
	// host:port or *.host.
	Decide(session protocol.SessionID, pattern string, decision protocol.Decision) error
	// Revoke removes the rules of a session for a pattern.
	Revoke(session protocol.SessionID, pattern string) error
	// Verdict returns whether the rules allow host, and whether they cover it at
	// all.
	Verdict(session protocol.SessionID, host hostname.Host) (allowed, known bool)
}

// BrokerRules say where the broker may send which secrets.
type BrokerRules interface {
	// Decide says whether a session's secret may go to a domain. AllowOnce covers
	// the next request, since none waits; Deny covers none.
	Decide(session protocol.SessionID, secret, domain string, decision protocol.Decision) error
}

// Decisions executes people's decisions.
type Decisions struct {
	Approvals Decider
	Egress    EgressRules
	Broker    BrokerRules
	Log       *slog.Logger
}

// Operations are the operations for decisions.
func (d Decisions) Operations() feature.Operations {
	return feature.Operations{
		op.KindEgressDecide: feature.Do(d.egress),
		op.KindEgressRevoke: feature.Do(func(_ context.Context, c *jws.Command, body *op.EgressRevoke) (protocol.OpResult, error) {
			return feature.Done(c), d.Egress.Revoke(c.Target.SessionID, body.Pattern)
		}),
		op.KindBrokerDecide: feature.Do(d.broker),
		op.KindToolDecide:   feature.Do(d.tool),
	}
}

func (d Decisions) egress(_ context.Context, c *jws.Command, body *op.EgressDecide) (protocol.OpResult, error) {
	session := c.Target.SessionID
	if body.Rule() {
		return feature.Done(c), d.rule(c, session, body.Pattern, body.Decision)
	}
	answer := answerOf(c, protocol.ApprovalEgress, body.ApprovalID, body.Revision, body.Decision)
	return d.decide(c, answer, func(a protocol.Approval) error {
		if !a.Decision.Lasts() {
			return nil
		}
		return d.rule(c, session, patternOf(a), a.Decision)
	})
}

// rule makes an egress rule and settles the questions that it answers.
func (d Decisions) rule(c *jws.Command, session protocol.SessionID, pattern string, decision protocol.Decision) error {
	if err := d.Egress.Decide(session, pattern, decision); err != nil {
		return err
	}
	d.settle(answerOf(c, protocol.ApprovalEgress, "", 0, ""))
	return nil
}

// settle answers the waiting connections that the new rule covers: nobody needs
// to decide about them any more.
func (d Decisions) settle(by protocol.Approval) {
	for _, a := range d.Approvals.List(by.SessionID).Approvals {
		if a.State != protocol.ApprovalPending || a.Kind != protocol.ApprovalEgress {
			continue
		}
		host, err := hostname.Parse(net.JoinHostPort(a.Host, strconv.Itoa(a.Port)), 0)
		if err != nil {
			continue // it never is
		}
		allowed, known := d.Egress.Verdict(a.SessionID, host)
		if !known {
			continue
		}
		by.ID, by.Revision, by.Decision = a.ID, a.Revision, protocol.Deny
		if allowed {
			by.Decision = protocol.AllowOnce
		}
		if _, _, err := d.Approvals.Decide(by); err != nil {
			d.Log.Warn("an approval that a rule has answered stays open", "id", a.ID, "err", err)
		}
	}
}

// patternOf returns the rule for a lasting egress decision: the host, with its
// port unless that is a web port.
func patternOf(a protocol.Approval) string {
	if a.Port == 80 || a.Port == 443 {
		return a.Host
	}
	return net.JoinHostPort(a.Host, strconv.Itoa(a.Port))
}

func (d Decisions) broker(_ context.Context, c *jws.Command, body *op.BrokerDecide) (protocol.OpResult, error) {
	session := c.Target.SessionID
	if body.Rule() {
		return feature.Done(c), d.Broker.Decide(session, body.Secret, body.Domain, body.Decision)
	}
	answer := answerOf(c, protocol.ApprovalBroker, body.ApprovalID, body.Revision, body.Decision)
	return d.decide(c, answer, func(a protocol.Approval) error {
		return d.Broker.Decide(session, a.Secret, a.Host, a.Decision)
	})
}

// tool answers a coding agent's question. Whoever has asked it does what the
// answer says, and remembers what is to be remembered.
func (d Decisions) tool(_ context.Context, c *jws.Command, body *op.ToolDecide) (protocol.OpResult, error) {
	answer := answerOf(c, protocol.ApprovalTool, body.Approval, body.Revision, body.Decision)
	answer.Remember = body.Remember
	a, applied, err := d.Approvals.DecideTool(answer, Reply{UpdatedInput: body.UpdatedInput, Message: body.Message})
	if err != nil {
		return protocol.OpResult{}, err
	}
	result := feature.Done(c)
	result.Approval, result.Applied, result.ConversationID = &a, applied, a.ConversationID
	return result, nil
}

// answerOf returns a decision in the form of the approvals.
func answerOf(c *jws.Command, kind protocol.ApprovalKind, id string, revision uint64, decision protocol.Decision) protocol.Approval {
	return protocol.Approval{
		ID: id, Revision: revision, Kind: kind, SessionID: c.Target.SessionID, Decision: decision,
		UserID: c.UserID, GrantID: c.GrantID, CommandID: c.CommandID,
	}
}

// decide answers an approval and, if this answer decided it, makes the rule for
// it, if any.
func (d Decisions) decide(c *jws.Command, answer protocol.Approval, rule func(protocol.Approval) error) (protocol.OpResult, error) {
	a, applied, err := d.Approvals.Decide(answer)
	if err != nil {
		return protocol.OpResult{}, err
	}
	if applied {
		if err := rule(a); err != nil {
			e := protocol.AsError(err)
			return protocol.OpResult{}, &protocol.Error{
				Kind: e.Kind, Message: "it was decided, but no rule was made: " + e.Error(), Err: e.Err,
			}
		}
	}
	result := feature.Done(c)
	result.Approval, result.Applied = &a, applied
	return result, nil
}
