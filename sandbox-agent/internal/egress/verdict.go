package egress

import (
	"context"
	"errors"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

// holdLimit bounds the wait for an approver. The approver's clock decides
// whether a decision came in time; this is only a safeguard.
const holdLimit = protocol.EgressTTL + time.Second

// errGone is the cause when a request's context ends because its client left.
var errGone = errors.New("the client is gone")

// decide returns the verdict on a request of who to host, and how long that
// took to be decided.
func (p *Proxy) decide(ctx context.Context, who caller, host hostname.Host) (reason Reason, waited time.Duration) {
	if host.IsLoopback() {
		if host.Port == dnsPort || p.cfg.Agent != nil && p.cfg.Agent.Owns(host.Port) {
			return DeniedPort, 0
		}
		return AllowedLoopback, 0
	}
	// Nobody is asked about an address that is refused anyway.
	if p.cfg.Dialer.Check(host, 0) != nil {
		return DeniedPrivate, 0
	}
	changed := p.cfg.Rules.next() // before the rules are read, or a change could be missed
	if reason := p.cfg.Rules.verdict(who.session, host); reason != "" {
		return reason, 0
	}
	start := time.Now()
	reason = p.hold(ctx, who, host, changed)
	return reason, time.Since(start)
}

// hold waits until somebody decides about host, a rule does, or time is up.
func (p *Proxy) hold(ctx context.Context, who caller, host hostname.Host, changed <-chan struct{}) Reason {
	if p.cfg.Approver == nil {
		return DeniedUnasked
	}
	p.counters.holding.Add(1)
	defer p.counters.holding.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, holdLimit)
	defer cancel()
	answered := make(chan Reason, 1)
	p.running.Go(func() { answered <- p.ask(ctx, who, host) })
	for {
		select {
		case reason := <-answered:
			// A rule may have come with the decision, or instead of it.
			if rule := p.cfg.Rules.verdict(who.session, host); rule == DeniedByRule {
				return rule
			}
			return reason
		case <-changed:
			changed = p.cfg.Rules.next()
			if reason := p.cfg.Rules.verdict(who.session, host); reason != "" {
				return reason
			}
		case <-ctx.Done():
			return unanswered(ctx)
		}
	}
}

// ask asks the approver.
func (p *Proxy) ask(ctx context.Context, who caller, host hostname.Host) Reason {
	pty := who.pty
	if pty == browserPTY {
		pty = "" // people know no such terminal
	}
	decision, err := p.cfg.Approver.AskEgress(ctx, who.session, pty, host)
	switch {
	case ctx.Err() != nil:
		return unanswered(ctx)
	case err == nil && decision.Allows():
		return AllowedByPerson
	case err == nil && decision.Known():
		return DeniedByPerson
	case protocol.KindOf(err) == protocol.KindExpired:
		return DeniedExpired
	case protocol.KindOf(err) == protocol.KindTooMany:
		return DeniedTooMany
	default:
		return DeniedUnasked
	}
}

// unanswered returns why ctx ended before an answer came.
func unanswered(ctx context.Context) Reason {
	switch {
	case errors.Is(context.Cause(ctx), errGone):
		return DeniedGone
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return DeniedExpired
	default:
		return DeniedUnasked // the proxy is ending
	}
}
