package approval

import (
	"context"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

// AskEgress asks whether a connection may be made, and waits for the answer as
// [Log.Await] does.
func (l *Log) AskEgress(ctx context.Context, session protocol.SessionID, pty protocol.PTYID, host hostname.Host) (protocol.Decision, error) {
	return l.Await(ctx, Request{
		Session: session, PTY: pty, Kind: protocol.ApprovalEgress, Host: host.Hostname(), Port: host.Port,
	})
}

// AskSecret asks whether a secret may go to a domain. Nobody waits for the
// answer.
func (l *Log) AskSecret(session protocol.SessionID, pty protocol.PTYID, secret, domain string) {
	_, err := l.Ask(Request{Session: session, PTY: pty, Kind: protocol.ApprovalBroker, Host: domain, Secret: secret})
	if err != nil {
		l.log.Warn("nobody is asked about a secret", "session", session, "secret", secret, "host", domain, "err", err)
	}
}
