package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/tunnel"
)

// A terminalStream joins a relay's stream to a terminal: one goroutine writes
// what the attachment has, another obeys what the relay sends.
type terminalStream struct {
	link       *Link
	stream     *tunnel.Stream
	attachment *terminal.Attachment
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
	return err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, terminal.ErrNoGrant)
}

// run serves until the terminal is over, the stream ends, or nobody may view the
// terminal through it any more.
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
		s.attachment.Propose(m)
	case protocol.GrantAdd:
		s.attachment.Post(s.add(ctx, m))
	case protocol.GrantDrop:
		s.attachment.DropGrant(m.GrantID)
	default:
		return fmt.Errorf("link: %s on a terminal stream", m.FrameType())
	}
	return nil
}

// add verifies a viewer's grant and adds it to those of the stream.
func (s *terminalStream) add(ctx context.Context, m protocol.GrantAdd) (answer protocol.Granted) {
	answer.Handle = m.Handle
	grant, err := s.link.grant(ctx, m.Grant)
	if err == nil {
		answer.GrantID = grant.ID
		err = s.attachment.AddGrant(grant, m.Handle)
	}
	if err != nil {
		answer.Refused = err.Error()
	}
	return answer
}
