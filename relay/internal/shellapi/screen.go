package shellapi

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/gateway"
	"github.com/fairlead/fairlead/relay/internal/hub"
	"github.com/fairlead/fairlead/relay/internal/replay"
)

// maxOutput bounds the bytes of a terminal in one frame.
const maxOutput = 64 << 10

// A screen is a hub's sink: it turns what a terminal's viewer gets into frames of
// seed 002.
type screen struct {
	// Static after construction.
	conn *gateway.Conn

	mu sync.Mutex // held while the socket is written to
	// Guarded by mu.
	told   map[string]bool // addresses: the socket's, used by its present screen alone
	left   bool            // the socket shows something else: nothing more is written
	ended  bool            // the program's end was told
	frames frames
	out    []byte // framed, of one call
	scrap  []byte // the payload that is framed
	output []byte // of the terminal, not framed yet
}

var _ hub.Offerer = (*screen)(nil)

// Ping implements hub.Sink.
func (s *screen) Ping() error { return s.conn.Ping() }

// LastHeard implements hub.Sink.
func (s *screen) LastHeard() time.Time { return s.conn.LastHeard() }

// WriteFrames implements hub.Sink.
func (s *screen) WriteFrames(batch net.Buffers) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		return net.ErrClosed
	}
	return s.conn.WriteFrames(s.translate(batch))
}

// Begin implements hub.Offerer.
func (s *screen) Begin() bool { return s.conn.Begin() }

// Offer implements hub.Offerer.
func (s *screen) Offer(batch net.Buffers) (drained bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left {
		return s.conn.Offer(nil)
	}
	return s.conn.Offer(s.translate(batch))
}

// over reports whether the client was told of the program's end.
func (s *screen) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// leave has nothing more written: the socket shows something else.
func (s *screen) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = true
}

// Close implements hub.Sink. The end of a terminal is none of the socket: its client
// may ask for another one.
func (s *screen) Close(code int, reason string) {
	if code != protocol.KindEnded.CloseCode() {
		s.conn.Close(code, reason)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended && !s.left { // it was gone before anybody could tell how it ended
		s.ended = true
		_ = s.conn.WriteFrames(net.Buffers{outputFrame([]byte(exitText(protocol.PTYClosed{ExitCode: -1, Signal: "SIGHUP"})))}) // the reader notices a dead socket
	}
}

// translate returns the frames for the client, valid until the next call. The caller
// holds mu.
func (s *screen) translate(batch net.Buffers) net.Buffers {
	s.out = s.out[:0]
	for _, p := range batch {
		for len(p) > 0 {
			var piece []byte
			var kind kind
			switch piece, kind, p = s.frames.next(p); kind {
			case outputPiece:
				s.output = append(s.output, piece...)
			case wholeMessage:
				s.message(piece)
			}
		}
	}
	s.print(false)
	if len(s.out) == 0 {
		return nil
	}
	return net.Buffers{s.out}
}

// message takes a text frame of the hub. The caller holds mu.
func (s *screen) message(data []byte) {
	var m struct {
		Type string `json:"type"`
		protocol.PTYClosed
		Reason   protocol.RefusalReason `json:"reason"`
		Message  string                 `json:"message"`
		Origin   string                 `json:"origin"`
		URL      string                 `json:"url"`
		AutoOpen bool                   `json:"auto_open"`
	}
	if json.Unmarshal(data, &m) != nil { // impossible: the hub has made it
		return
	}
	switch m.Type {
	case protocol.ServerResync, protocol.ServerAttached:
		s.print(true) // what follows isn't the rest of a character
	case protocol.ServerPTYClosed:
		s.print(true)
		s.output = append(s.output, exitText(m.PTYClosed)...)
		s.print(true)
		s.ended = true
	case protocol.ServerInputRefused:
		s.tell(errorMessage{refusedText(m.Reason)})
	case protocol.ServerError:
		s.tell(errorMessage{m.Message})
	case protocol.ServerMoved: // the socket's end follows
		s.tell(movedMessage(m.Origin))
	case protocol.ServerAuthURL:
		if !s.told[m.URL] && len(s.told) < maxTold {
			s.told[m.URL] = true
			s.tell(authURL{m.URL, m.AutoOpen})
		}
	}
}

// maxTold bounds the addresses that one socket is told.
const maxTold = 1024

// tell adds a message for the client. The caller holds mu.
func (s *screen) tell(m any) {
	s.print(false)
	data, err := json.Marshal(m)
	if err != nil { // impossible: they are plain
		return
	}
	s.out = replay.AppendTextFrame(s.out, data)
}

// print frames what the terminal has printed, but for the beginning of a character:
// that comes with its rest, unless there is none. The caller holds mu.
func (s *screen) print(all bool) {
	n := len(s.output)
	if !all {
		n -= torn(s.output)
	}
	for p := s.output[:n]; len(p) > 0; {
		piece := p[:min(len(p), maxOutput)]
		if len(piece) < len(p) {
			piece = piece[:len(piece)-torn(piece)]
		}
		s.scrap = appendOutput(s.scrap[:0], piece)
		s.out = replay.AppendTextFrame(s.out, s.scrap)
		p = p[len(piece):]
	}
	s.output = s.output[:copy(s.output, s.output[n:])]
	if cap(s.output) > 2*maxOutput { // a keyframe was in it
		s.output, s.scrap = bytes.Clone(s.output), nil
	}
}

// torn returns how many bytes at the end of p begin a character that isn't whole.
func torn(p []byte) int {
	for i := len(p) - 1; i >= max(0, len(p)-utf8.UTFMax+1); i-- {
		if utf8.RuneStart(p[i]) {
			if utf8.FullRune(p[i:]) {
				return 0
			}
			return len(p) - i
		}
	}
	return 0
}

// An errorMessage is "error".
type errorMessage struct{ message string }

// MarshalJSON implements [json.Marshaler].
func (m errorMessage) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}{"error", m.message})
}

// A movedMessage is "moved": the relay at this origin has the sandbox's terminals.
type movedMessage string

// MarshalJSON implements [json.Marshaler].
func (m movedMessage) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type   string `json:"type"`
		Origin string `json:"origin"`
	}{protocol.ServerMoved, string(m)})
}

// An authURL is "auth_url".
type authURL struct {
	url  string
	auto bool
}

// MarshalJSON implements [json.Marshaler].
func (m authURL) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Type     string `json:"type"`
		URL      string `json:"url"`
		AutoOpen bool   `json:"autoOpen"`
	}{"auth_url", m.url, m.auto})
}

// exitText is how a client learns of a program's end: it looks for the words.
func exitText(m protocol.PTYClosed) string {
	code, by := m.ExitCode, ""
	if m.Signal != "" {
		code, by = 128+int(unix.SignalNum(m.Signal)), " ("+m.Signal+")"
	}
	return fmt.Sprintf("\r\n\x1b[33mProcess exited with code %d%s\x1b[0m\r\n", code, by)
}

// refusedText says why something wasn't typed.
func refusedText(reason protocol.RefusalReason) string {
	switch reason {
	case protocol.RefusedNotController, protocol.RefusedStaleTerm:
		return "Nothing was typed: somebody else controls this shell."
	case protocol.RefusedAgentRunning:
		return "Nothing was typed: a coding agent is working in this shell."
	case protocol.RefusedBusy:
		return "Nothing was typed: the shell doesn't take any more."
	case protocol.RefusedWaiting:
		return "Nothing was typed: the sandbox is not connected."
	}
	return "Nothing was typed: the shell has ended."
}

// outputFrame returns text as one frame of output.
func outputFrame(text []byte) []byte {
	return replay.AppendTextFrame(nil, appendOutput(nil, text))
}

// appendOutput appends text as "output".
func appendOutput(dst, text []byte) []byte {
	dst = append(dst, `{"type":"output","data":"`...)
	for len(text) > 0 {
		n := 0
		for n < len(text) && text[n] >= ' ' && text[n] != '"' && text[n] != '\\' && text[n] < utf8.RuneSelf {
			n++
		}
		dst = append(dst, text[:n]...)
		if text = text[n:]; len(text) == 0 {
			break
		}
		b := text[0]
		if b >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(text)
			dst = utf8.AppendRune(dst, r)
			text = text[size:]
			continue
		}
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		default:
			const digits = "0123456789abcdef"
			dst = append(dst, `\u00`...)
			dst = append(dst, digits[b>>4], digits[b&0xf])
		}
		text = text[1:]
	}
	return append(dst, `"}`...)
}

// frames takes a hub's frames apart. It is for one goroutine.
type frames struct {
	head [10]byte
	have int
	left uint64 // of the payload
	text []byte // of a text frame, as far as it has come
}

const (
	opText   = 1
	finalBit = 0x80
)

// A kind says what a piece of a hub's frames is.
type kind uint8

const (
	nothing      kind = iota
	outputPiece       // of a terminal
	wholeMessage      // a text frame's payload
)

// next returns the next piece of p, and what is left of that.
func (f *frames) next(p []byte) (piece []byte, is kind, rest []byte) {
	if f.left == 0 {
		f.head[f.have] = p[0]
		f.have++
		if f.have >= 2 && f.have == f.headBytes() {
			f.have, f.left, f.text = 0, f.length(), f.text[:0]
		}
		return nil, nothing, p[1:]
	}
	n := int(min(f.left, uint64(len(p))))
	piece, rest = p[:n], p[n:]
	f.left -= uint64(n)
	if f.head[0] != finalBit|opText {
		return piece, outputPiece, rest
	}
	f.text = append(f.text, piece...)
	if f.left > 0 {
		return nil, nothing, rest
	}
	return f.text, wholeMessage, rest
}

// headBytes returns the size of the header.
func (f *frames) headBytes() int {
	switch f.head[1] {
	case 126:
		return 4
	case 127:
		return 10
	}
	return 2
}

// length returns the size of the payload.
func (f *frames) length() uint64 {
	switch f.head[1] {
	case 126:
		return uint64(binary.BigEndian.Uint16(f.head[2:]))
	case 127:
		return binary.BigEndian.Uint64(f.head[2:])
	}
	return uint64(f.head[1])
}
