package link

import (
	"errors"
	"fmt"
	"io"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/arbiter"
	"github.com/fairlead/fairlead/sandbox-agent/internal/terminal"
	"github.com/fairlead/fairlead/tunnel/terminalstream"
)

// terminals answers the streams over which a relay uses terminals.
func (l *Link) terminals() *terminalstream.Server {
	return &terminalstream.Server{
		Sandbox: l.Sandbox, Keys: l.Keys,
		Find: func(session protocol.SessionID, pty protocol.PTYID) (terminalstream.Terminal, error) {
			t, err := l.Host.Get(session, pty)
			return hosted{t}, err
		},
		Watch: func() (end func()) {
			l.watch.begin()
			return l.watch.end
		},
	}
}

// hosted is a terminal of the host's as a [terminalstream.Terminal].
type hosted struct{ terminal *terminal.Terminal }

func (h hosted) Attach(params protocol.TerminalParams) (terminalstream.Attachment, protocol.TerminalOpened, error) {
	a, opened, err := h.terminal.Attach(params)
	return attachment{a}, opened, err
}

func (h hosted) Read(params protocol.ReadParams) (terminalstream.Reading, protocol.ReadOpened, error) {
	return h.terminal.Read(params)
}

// attachment is an attachment of the host's as a [terminalstream.Attachment].
type attachment struct{ *terminal.Attachment }

// End closes the attachment.
func (a attachment) End(why error) {
	if lost(why) {
		a.Lose()
		return
	}
	a.Close()
}

// lost reports whether a stream that ended with err was cut off with its tunnel,
// and its viewers with it, who are coming back then.
func lost(err error) bool {
	return err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, arbiter.ErrNoGrant)
}

// Obey does what a frame of the relay says.
func (a attachment) Obey(m protocol.Message) error {
	switch m := m.(type) {
	case protocol.Input:
		a.Input(m)
	case protocol.Resize:
		a.Resize(m)
	case protocol.Holder:
		a.Holder(m)
	case protocol.Audience:
		a.Audience(m)
	case protocol.WantKeyframe:
		a.WantKeyframe(m.History)
	case protocol.Pace:
		a.Pace(m)
	case protocol.LeaseProposal:
		a.Propose(m)
	case protocol.GrantDrop:
		a.DropGrant(m.GrantID)
	default:
		return fmt.Errorf("link: %s on a terminal stream", m.FrameType())
	}
	return nil
}
