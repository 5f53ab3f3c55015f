package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/tunnel"
)

// errNoGrant ends a terminal stream that nobody may view any more.
var errNoGrant = errors.New("link: no valid view grant remains")

// A terminalStream joins a relay's stream to a terminal: one goroutine writes
// what the attachment has, another obeys what the relay sends.
type terminalStream struct {
	link       *Link
	stream     *tunnel.Stream
	attachment *terminal.Attachment
	grants     *grantList
}

// end closes the attachment after run has returned err.
func (s *terminalStream) end(err error) {
	if lost(err) {
		s.attachment.Lose()
		return
	}
	s.attachment.Close()
}

// lost reports whether a stream that ended with err was cut off with its tunnel,
// and its viewers with it, who are coming back then.
func lost(err error) bool {
	return err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errNoGrant)
}

// run serves until the terminal is over, the stream ends, or no grant is left.
// It returns io.EOF when the relay has closed the stream.
func (s *terminalStream) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { s.stream.Close() })
	defer stop()
	var reading sync.WaitGroup
	defer reading.Wait()
	defer s.stream.Close()
	reading.Go(func() { cancel(s.receive(ctx)) })
	reading.Go(func() { s.expire(ctx, cancel) })
	if err := s.send(ctx); !errors.Is(err, io.EOF) {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	return nil
}

// send writes what the attachment has. It ends with io.EOF after EXITED.
func (s *terminalStream) send(ctx context.Context) error {
	for {
		m, err := s.attachment.Next(ctx)
		if err != nil {
			return err
		}
		if err := protocol.Write(s.stream, m); err != nil {
			return err
		}
	}
}

// receive obeys the relay's frames until the stream ends.
func (s *terminalStream) receive(ctx context.Context) error {
	frames := protocol.NewFrameReader(s.stream)
	for {
		frame, err := frames.Next()
		if err != nil {
			return err
		}
		m, err := protocol.Decode(frame)
		if err != nil {
			return err
		}
		if err := s.obey(ctx, m); err != nil {
			return err
		}
	}
}

func (s *terminalStream) obey(ctx context.Context, m protocol.Message) error {
	switch m := m.(type) {
	case protocol.Input:
		s.attachment.Input(m)
	case protocol.Resize:
		s.attachment.Resize(m)
	case protocol.Holder:
		s.attachment.Holder(m)
	case protocol.WantKeyframe:
		s.attachment.WantKeyframe(m.History)
	case protocol.Pace:
		s.attachment.Pace(m)
	case protocol.LeaseProposal:
		if err := s.grants.mayHold(m.Next, s.link.Now()); err != nil {
			s.attachment.RefuseProposal(m.ID, err.Error())
			return nil
		}
		s.attachment.Propose(m)
	case protocol.GrantAdd:
		answer := protocol.Granted{}
		grant, err := s.grants.add(ctx, m.Grant)
		if grant != nil {
			answer.GrantID = grant.ID
		}
		if err != nil {
			answer.Refused = err.Error()
		}
		s.attachment.Post(answer)
	case protocol.GrantDrop:
		s.grants.drop(m.GrantID)
	default:
		return fmt.Errorf("link: %s on a terminal stream", m.FrameType())
	}
	return nil
}

// expire ends the stream once no grant allows to view the terminal.
func (s *terminalStream) expire(ctx context.Context, cancel context.CancelCauseFunc) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if !s.grants.anyValid(s.link.Now()) {
				cancel(errNoGrant)
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// maxGrants bounds the grants of one stream.
const maxGrants = 4096

// A grantList holds the grants under which a terminal stream is used.
type grantList struct {
	// Static after construction.
	link   *Link
	params protocol.TerminalParams

	// Guarded by mu.
	mu     sync.Mutex
	grants map[protocol.GrantID]*jws.Grant
}

func newGrantList(l *Link, params protocol.TerminalParams) *grantList {
	return &grantList{link: l, params: params, grants: map[protocol.GrantID]*jws.Grant{}}
}

// add verifies token and adds its grant if that allows to view the terminal.
func (g *grantList) add(ctx context.Context, token string) (*jws.Grant, error) {
	grant, err := g.link.grant(ctx, token)
	if err != nil {
		return nil, err
	}
	if !grant.Allows(g.params.SessionID, g.params.PTYID, protocol.CapView) {
		return grant, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this terminal")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.grants) >= maxGrants {
		g.sweep(g.link.Now())
	}
	if len(g.grants) >= maxGrants {
		return grant, protocol.Errorf(protocol.KindTooMany, "over %d grants", maxGrants)
	}
	g.grants[grant.ID] = grant
	return grant, nil
}

func (g *grantList) drop(id protocol.GrantID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.grants, id)
}

// mayHold checks that next's grant is here, valid, and lets its user control
// the terminal. Freeing a lease needs no grant.
func (g *grantList) mayHold(next protocol.LeaseNext, now time.Time) error {
	if next.Holder == "" {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	grant := g.grants[next.GrantID]
	if grant == nil || grant.Subject != next.Holder || expired(grant, now) ||
		!grant.Allows(g.params.SessionID, g.params.PTYID, protocol.CapControl) {
		return protocol.Errorf(protocol.KindForbidden, "the grant does not allow to control this terminal")
	}
	return nil
}

// anyValid drops what has expired and reports whether something is left.
func (g *grantList) anyValid(now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sweep(now)
	return len(g.grants) > 0
}

// sweep drops expired grants. The caller holds mu.
func (g *grantList) sweep(now time.Time) {
	for id, grant := range g.grants {
		if expired(grant, now) {
			delete(g.grants, id)
		}
	}
}

// expired allows for the skew that its verification allowed for: a grant that
// was just taken must not be dropped at once.
func expired(grant *jws.Grant, now time.Time) bool {
	return now.After(grant.Expires().Add(jws.Skew))
}
