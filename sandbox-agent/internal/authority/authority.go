// Package authority is the sandbox's standing with its control plane: the
// credentials that it proves itself by, the keys and revocations that it believes,
// and what it reports.
package authority

import (
	"context"
	"fmt"
	"sync"

	"github.com/fairlead/fairlead/sandbox-agent/internal/controlplane"
)

// An Authority is the sandbox's standing with its control plane. Make it with
// Open, then Run it once.
type Authority struct {
	// Static after construction.
	Credentials *Credentials
	Trust       *Trust
	Outbox      *Outbox
	Heads       *Heads
	client      *controlplane.Client
}

// Open reads what is known of keys and revocations. Nothing is asked before Run.
func Open(o Options) (*Authority, error) {
	client, err := controlplane.New(o.Identity.Enrolment.ControlPlane, o.Dialer.Dial)
	if err != nil {
		return nil, fmt.Errorf("enrolment %s: %w", o.Identity.file, err)
	}
	trust, err := openTrust(o, client)
	if err != nil {
		return nil, err
	}
	credentials := newCredentials(o, client)
	return &Authority{
		Credentials: credentials, Trust: trust, Outbox: newOutbox(credentials, o.Log),
		Heads: &Heads{audit: o.Audit, credentials: credentials, changed: o.Changed, log: o.Log}, client: client,
	}, nil
}

// Run renews the certificate and reports what there is to report until ctx ends.
func (a *Authority) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { a.Credentials.keep(ctx) })
	running.Go(func() { a.Outbox.run(ctx) })
	running.Go(func() { a.Heads.keep(ctx) })
	running.Wait()
}

// Close closes the connections that are kept for later requests.
func (a *Authority) Close() error {
	a.client.Close()
	return nil
}
