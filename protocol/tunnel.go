package protocol

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strconv"
	"strings"
)

// ALPN is the application protocol of the tunnel's QUIC connection.
const ALPN = "fairlead/1"

// MinVersion and MaxVersion are the protocol versions this build speaks.
const (
	MinVersion = 1
	MaxVersion = 1
)

// NonceBytes is the length of a CHALLENGE's nonce.
const NonceBytes = 32

// A Lane is one yamux session inside a tunnel, named by its content.
type Lane string

const (
	LaneControl   Lane = "control"    // commands, connect, approvals
	LaneTerminal0 Lane = "terminal-0" // terminal streams, see TerminalLane
	LaneTerminal1 Lane = "terminal-1"
	LaneTerminal2 Lane = "terminal-2"
	LaneTerminal3 Lane = "terminal-3"
	LaneBulk      Lane = "bulk" // read, HTTP
)

// terminalLanes carry the terminals of a sandbox.
var terminalLanes = [...]Lane{LaneTerminal0, LaneTerminal1, LaneTerminal2, LaneTerminal3}

// TerminalLane returns the fixed lane of a terminal: so a burst in one terminal
// delays at most a quarter of the others.
func TerminalLane(id PTYID) Lane {
	h := fnv.New32a()
	h.Write([]byte(id))
	return terminalLanes[h.Sum32()%uint32(len(terminalLanes))]
}

// Known reports whether l is a lane of this version.
func (l Lane) Known() bool {
	return l == LaneControl || l == LaneBulk || slices.Contains(terminalLanes[:], l)
}

// Challenge opens the control stream. It asks the agent to sign Nonce; the
// relay proves nothing yet.
type Challenge struct {
	Nonce   []byte  `json:"nonce"` // NonceBytes random bytes
	RelayID RelayID `json:"relay_id"`
}

func (Challenge) FrameType() FrameType { return FrameChallenge }

func (m Challenge) check() error {
	if len(m.Nonce) != NonceBytes {
		return fmt.Errorf("nonce of %d bytes", len(m.Nonce))
	}
	return checkID("relay_id", m.RelayID)
}

// Hello registers an agent.
type Hello struct {
	MinVersion  int       `json:"min_version"`
	MaxVersion  int       `json:"max_version"`
	Features    []string  `json:"features,omitempty"`
	SandboxID   SandboxID `json:"sandbox_id"`
	Certificate string    `json:"certificate"` // compact JWS, see protocol/jws
	Generation  uint64    `json:"generation"`  // raised and stored before each dial
	InstanceID  string    `json:"instance_id"` // random for each process
	Revision    string    `json:"revision"`    // the agent's build
	Isolation   string    `json:"isolation"`   // "uid" or "none"
	Signature   []byte    `json:"signature"`   // over HelloTranscript, by the certified key
}

func (Hello) FrameType() FrameType { return FrameHello }

func (m Hello) check() error {
	if m.MinVersion < 1 || m.MaxVersion < m.MinVersion {
		return fmt.Errorf("version range %d…%d", m.MinVersion, m.MaxVersion)
	}
	if len(m.Certificate) > MaxTokenBytes {
		return errors.New("certificate too large")
	}
	if !ValidID(m.InstanceID) {
		return errors.New("instance_id")
	}
	return checkID("sandbox_id", m.SandboxID)
}

// HelloTranscript returns the bytes that an agent signs to register. They
// include the relay, its nonce and the TLS connection (exporter, empty if the
// carrier has none), so that a HELLO can't be replayed elsewhere.
func HelloTranscript(relay RelayID, nonce, exporter []byte) []byte {
	return transcript("fairlead/1 hello", []byte(relay), nonce, exporter)
}

// Welcome accepts a Hello.
type Welcome struct {
	Version    int      `json:"version"`
	RelayID    RelayID  `json:"relay_id"`
	Revision   string   `json:"revision"`
	LaneSecret []byte   `json:"lane_secret,omitempty"` // opens further carriers of this tunnel
	Alternates []string `json:"alternates,omitempty"`  // other relays, "host:port"
	Origin     string   `json:"origin,omitempty"`      // the relay's public origin
}

func (Welcome) FrameType() FrameType { return FrameWelcome }

func (m Welcome) check() error {
	if m.Version < 1 {
		return fmt.Errorf("version %d", m.Version)
	}
	return checkID("relay_id", m.RelayID)
}

// Refused answers a Hello or an Open that is not accepted.
type Refused struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
}

func (Refused) FrameType() FrameType { return FrameRefused }
func (Refused) check() error         { return nil }

// Err returns the refusal as an error.
func (m Refused) Err() *Error { return &Error{Kind: m.Kind, Message: m.Message} }

// Ping asks for a Pong with the same ID.
type Ping struct{ ID uint64 }

// Pong answers a Ping.
type Pong struct{ ID uint64 }

func (Ping) FrameType() FrameType              { return FramePing }
func (Pong) FrameType() FrameType              { return FramePong }
func (Ping) check() error                      { return nil }
func (Pong) check() error                      { return nil }
func (m Ping) appendPayload(dst []byte) []byte { return binary.BigEndian.AppendUint64(dst, m.ID) }
func (m Pong) appendPayload(dst []byte) []byte { return binary.BigEndian.AppendUint64(dst, m.ID) }

func decodePing(f Frame) (Message, error) {
	if len(f.Payload) != 8 {
		return nil, malformed(f.Type, fmt.Errorf("%d bytes", len(f.Payload)))
	}
	id := binary.BigEndian.Uint64(f.Payload)
	if f.Type == FramePong {
		return Pong{id}, nil
	}
	return Ping{id}, nil
}

// Role tells a relay whether this tunnel is the agent's primary one.
type Role struct {
	Primary    bool   `json:"primary"`
	Generation uint64 `json:"generation"`
	Origin     string `json:"origin,omitempty"` // the primary's public origin, for a standby's "moved"
}

func (Role) FrameType() FrameType { return FrameRole }
func (Role) check() error         { return nil }

// LaneRequest asks the agent to open a lane.
type LaneRequest struct {
	Lane Lane `json:"lane"`
}

func (LaneRequest) FrameType() FrameType { return FrameLane }

func (m LaneRequest) check() error {
	if !m.Lane.Known() {
		return fmt.Errorf("unknown lane %q", string(m.Lane))
	}
	return nil
}

// GoAway announces that the sender will end the tunnel.
type GoAway struct {
	Reason     Kind     `json:"reason"` // superseded, restarting, …
	Message    string   `json:"message,omitempty"`
	Alternates []string `json:"alternates,omitempty"`  // where to go instead, "host:port"
	DeadlineMS int64    `json:"deadline_ms,omitempty"` // time left, in milliseconds
	InstanceID string   `json:"instance_id,omitempty"` // superseded: the process that took over
}

func (GoAway) FrameType() FrameType { return FrameGoAway }
func (GoAway) check() error         { return nil }

// A Preface begins each lane's carrier stream:
//
//	"FLNE": 4 B | version: 1 B | n: 1 B | name: n B
type Preface struct {
	Version uint8
	Lane    Lane
}

// ControlStream is the name in the preface of the first stream, which carries
// frames of its own and no lane. The agent writes it so that the relay sees
// the stream, and can send CHALLENGE.
const ControlStream = "hello"

const (
	prefaceMagic    = "FLNE"
	maxPrefaceLane  = 32
	prefaceMinBytes = len(prefaceMagic) + 2
)

// AppendPreface appends p to dst.
func AppendPreface(dst []byte, p Preface) []byte {
	dst = append(dst, prefaceMagic...)
	dst = append(dst, p.Version, byte(len(p.Lane)))
	return append(dst, p.Lane...)
}

// ReadPreface reads a Preface from r, and not a byte more.
func ReadPreface(r io.Reader) (Preface, error) {
	buf := make([]byte, prefaceMinBytes, prefaceMinBytes+maxPrefaceLane)
	if _, err := io.ReadFull(r, buf); err != nil {
		return Preface{}, fmt.Errorf("protocol: preface: %w", err)
	}
	n := int(buf[prefaceMinBytes-1])
	if string(buf[:len(prefaceMagic)]) != prefaceMagic || n > maxPrefaceLane {
		return Preface{}, errors.New("protocol: not a lane preface")
	}
	name := buf[prefaceMinBytes : prefaceMinBytes+n]
	if _, err := io.ReadFull(r, name); err != nil {
		return Preface{}, fmt.Errorf("protocol: preface: %w", err)
	}
	p := Preface{buf[len(prefaceMagic)], Lane(name)}
	if p.Version < MinVersion || p.Version > MaxVersion || !p.Lane.Known() && p.Lane != ControlStream && p.Lane != ConnectStream {
		return Preface{}, fmt.Errorf("protocol: lane %q of version %d", name, p.Version)
	}
	return p, nil
}

// Open begins a stream.
type Open struct {
	Kind    StreamKind      `json:"kind"`
	Grant   string          `json:"grant,omitempty"`   // compact JWS: on whose behalf
	Command string          `json:"command,omitempty"` // compact JWS: what to run
	Params  json.RawMessage `json:"params,omitempty"`  // TerminalParams for "terminal", ReadParams for "read"

	Traceparent string `json:"traceparent,omitempty"` // of "command": a hint that nobody signs, ignored where it is none
}

func (Open) FrameType() FrameType { return FrameOpen }

func (m Open) check() error {
	if !slices.Contains(streamKinds, m.Kind) {
		return fmt.Errorf("unknown stream kind %q", string(m.Kind))
	}
	if len(m.Grant) > MaxTokenBytes || len(m.Command) > MaxTokenBytes {
		return errors.New("token too large")
	}
	return nil
}

// Opened accepts an Open.
type Opened struct {
	Result json.RawMessage `json:"result,omitempty"` // TerminalOpened for "terminal", ReadOpened for "read"
}

func (Opened) FrameType() FrameType { return FrameOpened }
func (Opened) check() error         { return nil }

// Result ends a command stream.
type Result struct {
	Callback json.RawMessage `json:"callback"`       // the ExecutionCallback of seed 003
	Kind     Kind            `json:"kind,omitempty"` // the error's kind when Callback holds one

	Signature []byte `json:"signature,omitempty"` // over CallbackTranscript, by the device key
}

func (Result) FrameType() FrameType { return FrameResult }

func (m Result) check() error {
	if len(m.Callback) == 0 || m.Callback[0] != '{' {
		return errors.New("callback is not an object")
	}
	return nil
}

// A Position is a place in a log. Its text form is "epoch:offset", the epoch
// in 16 hexadecimal digits.
type Position struct {
	Epoch  Epoch  `json:"epoch"`
	Offset uint64 `json:"offset"`
}

// An Epoch names one unbroken run of a log; it changes only when continuity is
// lost. JSON spells it as 16 hexadecimal digits, since a browser's numbers
// can't hold it.
type Epoch uint64

func (e Epoch) String() string               { return fmt.Sprintf("%016x", uint64(e)) }
func (e Epoch) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

func (e *Epoch) UnmarshalText(text []byte) error {
	if len(text) != 16 {
		return fmt.Errorf("epoch of %d digits", len(text))
	}
	n, err := strconv.ParseUint(string(text), 16, 64)
	*e = Epoch(n)
	return err
}

func (p Position) String() string { return p.Epoch.String() + ":" + strconv.FormatUint(p.Offset, 10) }

// ParsePosition parses the text form of a Position.
func ParsePosition(s string) (Position, error) {
	var p Position
	epoch, offset, ok := strings.Cut(s, ":")
	if !ok {
		return p, Errorf(KindInvalid, "position must be epoch:offset")
	}
	if err := p.Epoch.UnmarshalText([]byte(epoch)); err != nil {
		return p, Errorf(KindInvalid, "position: epoch must be 16 hexadecimal digits")
	}
	n, err := strconv.ParseUint(offset, 10, 63)
	if err != nil {
		return p, Errorf(KindInvalid, "position: offset must be a number")
	}
	p.Offset = n
	return p, nil
}

func checkID[T ~string](field string, id T) error {
	if !ValidID(id) {
		return fmt.Errorf("%s is not an id", field)
	}
	return nil
}
