package executor

import (
	"context"
	"net"
	"strconv"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// Approvals are what the sandbox has asked for. Package approval implements it.
type Approvals interface {
	// Decide answers an approval. Of answer count ID, Revision, Kind,
	// SessionID, Decision, UserID, GrantID and CommandID. It returns the
	// approval as it stands, and whether that is because of this answer.
	Decide(answer protocol.Approval) (as protocol.Approval, applied bool, err error)
}

// Egress are the rules by which sessions reach the network. Package egress
// implements it.
type Egress interface {
	// SetEnabled says whether new terminals of a session go through the egress
	// proxy.
	SetEnabled(session protocol.SessionID, on *bool) error
	// Decide makes a rule of a session: AllowAlways or DenyAlways for a host,
	// host:port or *.host.
	Decide(session protocol.SessionID, pattern string, decision protocol.Decision) error
	// Revoke removes the rules of a session for a pattern.
	Revoke(session protocol.SessionID, pattern string) error
}

// BrokerRules say which secrets the broker may send where. Package broker
// implements it.
type BrokerRules interface {
	// Decide says whether a secret of a session may go to a domain: AllowOnce
	// is for the next request, since none waits, and Deny for none.
	Decide(session protocol.SessionID, secret, domain string, decision protocol.Decision) error
}

// parseEgress returns the operation of egress.*.
func (x *Executor) parseEgress(command *jws.Command) (operation, error) {
	if command.Kind() == protocol.OpEgressRevoke {
		return x.parseEgressRevoke(command)
	}
	var op struct {
		plain
		protocol.EgressDecide
	}
	if err := decode(command, &op); err != nil {
		return nil, err
	}
	if err := protocol.CheckDecision(op.ApprovalID, op.Revision, op.Pattern != "", op.Decision); err != nil {
		return nil, err
	}
	session := command.Target.SessionID
	if op.Pattern != "" {
		return func(context.Context) (protocol.OpResult, error) {
			return done(command), x.rule(command, session, op.Pattern, op.Decision)
		}, nil
	}
	answer := answerOf(command, protocol.ApprovalEgress, op.ApprovalID, op.Revision, op.Decision)
	return func(context.Context) (protocol.OpResult, error) {
		return x.decide(command, answer, func(a protocol.Approval) error {
			if !a.Decision.Lasts() {
				return nil
			}
			return x.rule(command, session, patternOf(a), a.Decision)
		})
	}, nil
}

// rule makes a rule of egress and has what it answers settled.
func (x *Executor) rule(command *jws.Command, session protocol.SessionID, pattern string, decision protocol.Decision) error {
	if err := x.Egress.Decide(session, pattern, decision); err != nil {
		return err
	}
	if x.Ruled != nil {
		x.Ruled(answerOf(command, protocol.ApprovalEgress, "", 0, ""))
	}
	return nil
}

// patternOf returns the rule that a lasting decision about an egress approval
// makes: for its host, and its port unless that is one of the web's.
func patternOf(a protocol.Approval) string {
	if a.Port == 80 || a.Port == 443 {
		return a.Host
	}
	return net.JoinHostPort(a.Host, strconv.Itoa(a.Port))
}

func (x *Executor) parseEgressRevoke(command *jws.Command) (operation, error) {
	var op struct {
		plain
		protocol.EgressRevoke
	}
	if err := decode(command, &op); err != nil {
		return nil, err
	}
	if op.Pattern == "" {
		return nil, protocol.Errorf(protocol.KindInvalid, "pattern is missing")
	}
	return func(context.Context) (protocol.OpResult, error) {
		return done(command), x.Egress.Revoke(command.Target.SessionID, op.Pattern)
	}, nil
}

func (x *Executor) parseBrokerDecide(command *jws.Command) (operation, error) {
	var op struct {
		plain
		protocol.BrokerDecide
	}
	if err := decode(command, &op); err != nil {
		return nil, err
	}
	rule := op.Secret != "" || op.Domain != ""
	if err := protocol.CheckDecision(op.ApprovalID, op.Revision, rule, op.Decision); err != nil {
		return nil, err
	}
	session := command.Target.SessionID
	if rule {
		if err := protocol.CheckEnvName(op.Secret); err != nil {
			return nil, err
		}
		if op.Domain == "" {
			return nil, protocol.Errorf(protocol.KindInvalid, "domain is missing")
		}
		return func(context.Context) (protocol.OpResult, error) {
			return done(command), x.Broker.Decide(session, op.Secret, op.Domain, op.Decision)
		}, nil
	}
	answer := answerOf(command, protocol.ApprovalBroker, op.ApprovalID, op.Revision, op.Decision)
	return func(context.Context) (protocol.OpResult, error) {
		return x.decide(command, answer, func(a protocol.Approval) error {
			return x.Broker.Decide(session, a.Secret, a.Host, a.Decision)
		})
	}, nil
}

// answerOf is a decision as the approvals take it.
func answerOf(command *jws.Command, kind protocol.ApprovalKind, id string, revision uint64, decision protocol.Decision) protocol.Approval {
	return protocol.Approval{
		ID: id, Revision: revision, Kind: kind, SessionID: command.Target.SessionID, Decision: decision,
		UserID: command.UserID, GrantID: command.GrantID, CommandID: command.CommandID,
	}
}

// decide answers an approval and, when it was this answer that counts, makes
// the rule that it brings, if any.
func (x *Executor) decide(command *jws.Command, answer protocol.Approval, rule func(protocol.Approval) error) (protocol.OpResult, error) {
	a, applied, err := x.Approvals.Decide(answer)
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
	result := done(command)
	result.Approval, result.Applied = &a, applied
	return result, nil
}
