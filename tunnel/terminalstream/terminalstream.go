// Package terminalstream serves the streams over which a relay uses the
// terminals of a real or simulated sandbox: it checks the grant in the stream,
// attaches the relay to the terminal and moves frames.
package terminalstream

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program/hops"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/tunnel"
)

// readPatience is how long a relay may take for the next piece of a log. A
// relay may abandon a read without saying so.
const readPatience = 30 * time.Second

// A Terminal is one of the sandbox's terminals.
type Terminal interface {
	// Attach attaches a relay's stream to it.
	Attach(protocol.TerminalParams) (Attachment, protocol.TerminalOpened, error)
	// Read returns a part of its log.
	Read(protocol.ReadParams) (Reading, protocol.ReadOpened, error)
}

// An Attachment is one relay's stream to a terminal. One goroutine calls Next and Poll;
// the other methods are for other goroutines and never block.
type Attachment interface {
	// Next returns the next message for the relay and blocks until there is one.
	// After the last one it returns io.EOF. A message is valid until the next
	// call of it or Poll.
	Next(context.Context) (protocol.Message, error)
	// Obey handles a frame from the relay. An error ends the stream.
	Obey(protocol.Message) error
	// AddGrant adds a verified grant to those of the stream. handle is the relay's
	// name for its bearer.
	AddGrant(g *jws.Grant, handle uint64) error
	// Post makes Next return m.
	Post(m protocol.Message)
	// End ends the attachment. why is nil after Next's io.EOF, and io.EOF if the
	// relay has closed the stream.
	End(why error)
}

// A Poller is an Attachment that says what it has already. That goes to the relay by one
// write.
type Poller interface {
	// Poll is Next for what there is now, nil if that is nothing.
	Poll() (protocol.Message, error)
}

// A Reading is a read of a part of a terminal's log.
type Reading interface {
	// Next returns the next message, and io.EOF after the last one.
	Next() (protocol.Message, error)
}

// A Server serves the streams of one sandbox.
type Server struct {
	Sandbox protocol.SandboxID
	Keys    *jws.Keys
	Find    func(protocol.SessionID, protocol.PTYID) (Terminal, error)
	// Watch is called at the start of each terminal stream, and end at its end.
	Watch func() (end func())
}

// Grant verifies a grant, which must be for this sandbox.
func (s *Server) Grant(ctx context.Context, token string) (*jws.Grant, error) {
	g, err := s.Keys.Grant(ctx, token)
	if err != nil {
		return nil, err
	}
	if g.Sandbox != s.Sandbox {
		return nil, protocol.Errorf(protocol.KindForbidden, "the grant is for another sandbox")
	}
	return g, nil
}

// open decodes the stream's params into params, verifies its grant, and returns
// the terminal that target, called afterwards, names.
func (s *Server) open(ctx context.Context, in *tunnel.Incoming, params any, target func() (protocol.SessionID, protocol.PTYID)) (Terminal, *jws.Grant, error) {
	if json.Unmarshal(in.Open.Params, params) != nil {
		return nil, nil, protocol.Errorf(protocol.KindInvalid, "malformed params")
	}
	g, err := s.Grant(ctx, in.Open.Grant)
	if err != nil {
		return nil, nil, err
	}
	session, pty := target()
	if !g.Allows(session, pty, protocol.CapView) { // before revealing what exists
		return nil, nil, protocol.Errorf(protocol.KindForbidden, "the grant does not allow to view this terminal")
	}
	t, err := s.Find(session, pty)
	return t, g, err
}

// Accept answers OPEN with result.
func Accept(in *tunnel.Incoming, result any) (*tunnel.Stream, error) {
	body, err := json.Marshal(result)
	if err != nil {
		return nil, errors.Join(err, in.Refuse(err))
	}
	return in.Accept(protocol.Opened{Result: body})
}

// Terminal attaches the relay to a terminal until the terminal ends, the stream
// or ctx ends, or the stream has no valid grant any more.
func (s *Server) Terminal(ctx context.Context, in *tunnel.Incoming) error {
	var params protocol.TerminalParams
	t, g, err := s.open(ctx, in, &params, func() (protocol.SessionID, protocol.PTYID) { return params.SessionID, params.PTYID })
	if err != nil {
		return in.Refuse(err)
	}
	a, opened, err := t.Attach(params)
	if err != nil {
		return in.Refuse(err)
	}
	return s.Serve(ctx, in, g, a, opened)
}

// Serve answers OPEN with opened and moves frames between the stream and a, under
// a verified grant, until either ends. It ends a, whatever happens.
func (s *Server) Serve(ctx context.Context, in *tunnel.Incoming, g *jws.Grant, a Attachment, opened any) error {
	if err := a.AddGrant(g, 0); err != nil {
		a.End(nil)
		return in.Refuse(err)
	}
	stream, err := Accept(in, opened)
	if err != nil {
		a.End(err) // the relay may have read OPENED before the tunnel was lost
		return err
	}
	defer stream.Close()
	defer s.Watch()()
	err = s.join(ctx, stream, a)
	a.End(err)
	return err
}

// join moves frames between a stream and an attachment: one goroutine writes
// the attachment's messages, another handles the relay's frames. It returns
// io.EOF if the relay has closed the stream.
func (s *Server) join(ctx context.Context, stream *tunnel.Stream, a Attachment) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	var reading sync.WaitGroup
	defer reading.Wait()
	defer stream.Close()
	reading.Go(func() { cancel(s.receive(ctx, stream, a)) })
	if err := send(ctx, stream, a); !errors.Is(err, io.EOF) {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	return nil
}

// send writes the attachment's messages, those that are there at the same time by one
// write. It ends with io.EOF after EXITED.
func send(ctx context.Context, stream io.Writer, a Attachment) error {
	var buf []byte
	poll := func() (protocol.Message, error) { return nil, nil }
	if p, ok := a.(Poller); ok {
		poll = p.Poll
	}
	for {
		m, err := a.Next(ctx)
		for buf = buf[:0]; m != nil && err == nil; m, err = poll() {
			if buf, err = protocol.Append(buf, m); err != nil || len(buf) >= protocol.MaxStreamWrite/2 {
				break
			}
		}
		if len(buf) > 0 {
			hops.Pass(hops.StreamOut)
			if _, writing := stream.Write(buf); writing != nil {
				return writing
			}
		}
		if err != nil {
			return err
		}
	}
}

// receive handles the relay's frames until the stream ends.
func (s *Server) receive(ctx context.Context, stream *tunnel.Stream, a Attachment) error {
	frames := protocol.NewFrameReader(stream)
	for {
		frame, err := frames.Next()
		if err != nil {
			return err
		}
		hops.Pass(hops.StreamIn)
		m, err := protocol.Decode(frame)
		if err != nil {
			return err
		}
		if add, ok := m.(protocol.GrantAdd); ok {
			a.Post(s.add(ctx, a, add))
		} else if err := a.Obey(m); err != nil {
			return err
		}
	}
}

// add verifies a viewer's grant and adds it to the stream's.
func (s *Server) add(ctx context.Context, a Attachment, m protocol.GrantAdd) (answer protocol.Granted) {
	answer.Handle = m.Handle
	g, err := s.Grant(ctx, m.Grant)
	if err == nil {
		answer.GrantID = g.ID
		err = a.AddGrant(g, m.Handle)
	}
	if err != nil {
		answer.Refused = err.Error()
	}
	return answer
}

// Read serves a part of a terminal's log. If the log drops the rest before it
// is sent, the stream ends early.
func (s *Server) Read(ctx context.Context, in *tunnel.Incoming) error {
	var params protocol.ReadParams
	t, _, err := s.open(ctx, in, &params, func() (protocol.SessionID, protocol.PTYID) { return params.SessionID, params.PTYID })
	if err != nil {
		return in.Refuse(err)
	}
	reading, opened, err := t.Read(params)
	if err != nil {
		return in.Refuse(err)
	}
	stream, err := Accept(in, opened)
	if err != nil {
		return err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	for {
		m, err := reading.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		stream.SetWriteDeadline(time.Now().Add(readPatience))
		if err := protocol.Write(stream, m); err != nil {
			return err
		}
	}
}
