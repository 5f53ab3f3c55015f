package fleet

import (
	"context"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// A verdict says whether a member's tunnel is the one to use.
type verdict struct {
	settled bool
	err     error           // settled: not here
	changed <-chan struct{} // else: closed when the agent says another role
	wait    time.Duration   // else: until the answer changes by itself; 0: never
}

// judge decides whether m is what somebody has been looking for since began.
func (m *member) judge(began, now time.Time) verdict {
	select {
	case <-m.session.Done(): // about to be unregistered
		return verdict{}
	default:
	}
	role, said, changed := m.session.Role()
	switch {
	case !said:
		left := m.since.Add(roleTime).Sub(now)
		return verdict{settled: left <= 0, changed: changed, wait: left}
	case role.Primary:
		return verdict{settled: true}
	case role.Origin == "":
		return verdict{changed: changed}
	}
	if left := began.Add(patience).Sub(now); left > 0 {
		return verdict{changed: changed, wait: left}
	}
	return verdict{settled: true, err: &tunnel.StandbyError{Origin: role.Origin}}
}

// What the role of a tunnel is called.
const (
	rolePrimary = "primary"
	roleStandby = "standby"
)

func (m *member) roleName() string {
	switch role, said, _ := m.session.Role(); {
	case !said:
		return ""
	case role.Primary:
		return rolePrimary
	}
	return roleStandby
}

// Drain lets nobody in any more and asks every sandbox to leave, within left
// and for one of alternates ("host:port").
func (f *Fleet) Drain(alternates []string, left time.Duration) {
	f.mu.Lock()
	f.draining = true
	members := f.list()
	f.mu.Unlock()
	for _, m := range members {
		go m.session.GoAway(protocol.GoAway{ // ends at once, or with the handshake
			Reason: protocol.KindRestarting, Message: "the relay is going away",
			Alternates: alternates, DeadlineMS: left.Milliseconds(),
		})
	}
}

// AwaitHandover waits until no sandbox has its primary tunnel here, or ctx
// ends. It reports which.
func (f *Fleet) AwaitHandover(ctx context.Context) bool {
	return f.await(ctx, func(m *member) (bool, <-chan struct{}) {
		role, said, changed := m.session.Role()
		return said && !role.Primary, changed
	})
}

// AwaitEmpty waits until all sandboxes have left, or ctx ends. It reports
// which.
func (f *Fleet) AwaitEmpty(ctx context.Context) bool {
	return f.await(ctx, func(*member) (bool, <-chan struct{}) { return false, nil })
}

// await waits until each member has left or is done, which may change when the
// channel that it returns is closed.
func (f *Fleet) await(ctx context.Context, done func(*member) (bool, <-chan struct{})) bool {
	for {
		f.mu.Lock()
		members, left := f.list(), f.changed
		f.mu.Unlock()
		waiting, changed := false, (<-chan struct{})(nil)
		for _, m := range members {
			over, news := done(m)
			if !over {
				waiting, changed = true, news
				break // the others are looked at when this one is done
			}
		}
		if !waiting {
			return true
		}
		select {
		case <-left:
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// list returns the members. The caller holds mu.
func (f *Fleet) list() []*member {
	list := make([]*member, 0, len(f.members))
	for _, m := range f.members {
		list = append(list, m)
	}
	return list
}
