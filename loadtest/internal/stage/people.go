package stage

import (
	"context"
	"fmt"
	"net/http"

	"github.com/fairlead/fairlead/loadtest/internal/enrol"
	"github.com/fairlead/fairlead/loadtest/internal/stack"
	"github.com/fairlead/fairlead/protocol"
)

const (
	// socketsEach is how many sockets one person opens. A relay allows 256, and a
	// group's sockets may still be open when the next group comes.
	socketsEach = 100
	// grantsEach is how many sockets with a grant of their own one person opens.
	// A control plane allows 64 grants, and they are renewed before they end.
	grantsEach = 10
)

// Each returns how many sockets one person opens.
func (o *Options) each() int {
	if o.OwnGrants {
		return grantsEach
	}
	return socketsEach
}

// people returns how many people are needed for so many sockets.
func (o *Options) people(sockets int) int { return max(1, (sockets+o.each()-1)/o.each()) }

// People returns how many members beside those of every stack a run needs for
// its viewers.
func (o *Options) People() int {
	if n := o.people(o.Viewers * max(1, o.Terminals)); n > 1 {
		return n
	}
	return 0
}

// Watchers returns the people who open so many sockets. They don't control the
// terminal, if possible, since a controller's viewers hold it back.
func (e *Env) Watchers(sockets int) ([]stack.User, error) {
	others := e.Target.Others()
	if e.Options.Simulated {
		others = e.admitted
	}
	n := e.Options.people(sockets)
	switch {
	case len(others) == 0:
		return []stack.User{e.Target.Owner()}, nil
	case len(others) < n && n > 1 && len(others) > 1:
		return nil, fmt.Errorf("%d viewers are too many for %d people: a person opens %d (devstack --people %d)", sockets, len(others), e.Options.each(), n)
	}
	return others[:min(n, len(others))], nil
}

// admit makes so many people join the dashboard of a session other than the
// stack's own.
func (e *Env) admit(ctx context.Context, session protocol.SessionID, n int) error {
	owner := enrol.Account{URL: e.Target.Relays[0].URL, Token: e.Target.Owner().Token}
	others := e.Target.Others()
	if n == 0 {
		return nil
	}
	if len(others) < n {
		return fmt.Errorf("%d people are too few: %d are needed", len(others), n)
	}
	dashboard, err := owner.Dashboard(ctx, session)
	if err != nil {
		return err
	}
	for _, u := range others[:n] {
		path := "/dashboards/" + dashboard + "/members/" + string(u.ID)
		if err := owner.Do(ctx, http.MethodPut, path, map[string]any{"role": "viewer"}, nil); err != nil {
			return err
		}
		guest := enrol.Account{URL: owner.URL, Token: u.Token}
		if err := guest.Do(ctx, http.MethodPost, "/invitations/"+dashboard+"/accept", nil, nil); err != nil {
			return err
		}
	}
	e.admitted = others[:n]
	return nil
}
