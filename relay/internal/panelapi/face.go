package panelapi

import (
	"encoding/binary"
	"encoding/json"
	"net"
	"sync/atomic"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// What ends a panel's socket (chat-and-shell-2.md 1).
const (
	closeExited   = 1000
	textExited    = "pty exited"
	closeNoClaude = 4404
	textNoClaude  = "claude not found"
	closeRestart  = 4001

	codeNoClaude = "CLAUDE_NOT_FOUND"
	codeRefused  = "INPUT_REFUSED"
)

// notFound is the exit code of a shell that finds no program.
const notFound = 127

// A wire is the socket itself.
type wire interface {
	WriteFrames(frames net.Buffers) error
	Ping() error
	LastHeard() time.Time
	Close(code int, reason string)
}

// A prober knows whether the sandbox says that it hasn't got the program.
type prober interface{ missing() bool }

// A face shows a terminal to a panel: it is the hub's sink, and says in the panel's
// words what the hub says in ours. The terminal's bytes pass as they are.
type face struct {
	// Static after construction.
	wire
	session protocol.PTYID
	later   bool // it speaks what came after seed 000: it may be told where the output is
	again   bool // it comes back to a terminal
	prober  prober
	ended   atomic.Bool // the terminal is over

	// Owned by whoever writes, which is one at a time.
	exit *int
	out  net.Buffers // reused
}

// WriteFrames implements [hub.Sink]. A call has whole frames, in any number of
// pieces.
func (f *face) WriteFrames(frames net.Buffers) error {
	f.out = f.out[:0]
	p := pieces{in: frames}
	for !p.empty() {
		start := p
		op, size := p.header()
		if op != opText {
			f.out = p.pass(f.out, start, size)
			continue
		}
		if said := f.translate(p.take(size)); said != nil {
			f.out = append(f.out, replay.AppendTextFrame(nil, said))
		}
	}
	err := f.wire.WriteFrames(f.out)
	clear(f.out[:cap(f.out)])
	return err
}

// translate returns what a panel is told for a message of the hub's, nil for
// nothing.
func (f *face) translate(text []byte) []byte {
	var m struct {
		Type          string `json:"type"`
		ExitCode      *int   `json:"exit_code"`
		Reason        string `json:"reason"`
		Name          string `json:"name"`
		Message       string `json:"message"`
		Epoch         string `json:"epoch"`
		Offset        uint64 `json:"offset"`
		Mode          string `json:"mode"`
		KeyframeBytes int    `json:"keyframe_bytes"`
	}
	if json.Unmarshal(text, &m) != nil {
		return nil
	}
	switch m.Type {
	case protocol.ServerAttached:
		if !f.later {
			return nil
		}
		kind := "attached"
		if f.again {
			kind = "reattach-begin"
		}
		return encode(map[string]any{
			"type": kind, "sessionId": f.session, "epoch": m.Epoch, "offset": m.Offset, "mode": m.Mode, "keyframe_bytes": m.KeyframeBytes,
		})
	case protocol.ServerPTYClosed:
		f.exit = m.ExitCode
	case protocol.ServerInputRefused:
		return encode(map[string]any{"type": "error", "code": codeRefused, "message": m.Reason})
	case protocol.ServerError:
		return encode(map[string]any{"type": "error", "code": m.Name, "message": m.Message})
	case protocol.ServerMoved, protocol.ServerReauthed:
		return text
	}
	return nil
}

// Close implements [hub.Sink].
func (f *face) Close(code int, reason string) {
	if code != protocol.KindEnded.CloseCode() {
		f.wire.Close(code, reason)
		return
	}
	f.ended.Store(true)
	if f.exit != nil && *f.exit == notFound && f.prober.missing() {
		f.noClaude()
		return
	}
	f.wire.Close(closeExited, textExited)
}

// noClaude says that there is no claude, and ends the socket.
func (f *face) noClaude() {
	said := encode(map[string]any{
		"type": "error", "code": codeNoClaude, "message": "claude is not installed in the sandbox. Install it: " + installURL,
	})
	if f.wire.WriteFrames(net.Buffers{replay.AppendTextFrame(nil, said)}) == nil {
		f.wire.Close(closeNoClaude, textNoClaude)
	}
}

func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		return nil // it is made of strings and numbers
	}
	return text
}

const opText = 0x1

// pieces are frames in pieces, with a position.
type pieces struct {
	in net.Buffers // what is left; the first one isn't empty
	at int         // in the first one
}

func (p *pieces) empty() bool {
	for len(p.in) > 0 && p.at == len(p.in[0]) {
		p.in, p.at = p.in[1:], 0
	}
	return len(p.in) == 0
}

// take returns the next n bytes, which it copies only where they are in pieces.
func (p *pieces) take(n int) []byte {
	if p.empty() || n <= len(p.in[0])-p.at {
		if n == 0 || len(p.in) == 0 {
			return nil
		}
		b := p.in[0][p.at : p.at+n]
		p.at += n
		return b
	}
	var whole []byte
	for n > 0 && !p.empty() {
		part := p.in[0][p.at:min(len(p.in[0]), p.at+n)]
		whole = append(whole, part...)
		p.at += len(part)
		n -= len(part)
	}
	return whole
}

// header reads the header of a frame as a server sends it, unmasked and whole.
func (p *pieces) header() (op byte, size int) {
	head := p.take(2)
	if len(head) < 2 {
		return 0, 0
	}
	op, size = head[0]&0x0f, int(head[1]&0x7f)
	switch size {
	case 126:
		if long := p.take(2); len(long) == 2 {
			size = int(binary.BigEndian.Uint16(long))
		}
	case 127:
		if long := p.take(8); len(long) == 8 {
			size = int(binary.BigEndian.Uint64(long))
		}
	}
	return op, size
}

// pass appends a frame as it is, from where it starts to the end of its payload.
func (p *pieces) pass(out net.Buffers, start pieces, size int) net.Buffers {
	p.skip(size)
	for len(start.in) > len(p.in) {
		out = join(out, start.in[0][start.at:])
		start.in, start.at = start.in[1:], 0
	}
	if len(start.in) > 0 {
		out = join(out, start.in[0][start.at:p.at])
	}
	return out
}

// join appends a piece. Many small frames that lie behind each other stay one.
func join(out net.Buffers, piece []byte) net.Buffers {
	if len(piece) == 0 {
		return out
	}
	if n := len(out); n > 0 {
		if last := out[n-1]; cap(last) > len(last) && &last[:len(last)+1][len(last)] == &piece[0] {
			out[n-1] = last[:len(last)+len(piece)]
			return out
		}
	}
	return append(out, piece)
}

// skip passes over n bytes.
func (p *pieces) skip(n int) {
	for n > 0 && !p.empty() {
		step := min(n, len(p.in[0])-p.at)
		p.at += step
		n -= step
	}
}
