package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// A LeaseState is the state of a lease.
type LeaseState string

const (
	LeaseFree  LeaseState = "free"  // nobody controls the terminal
	LeaseHeld  LeaseState = "held"  // the holder has at least one socket
	LeaseGrace LeaseState = "grace" // the holder's last socket is gone; MSLeft runs
)

// A LeaseReason says why control passed to somebody without being handed over.
type LeaseReason string

const (
	ReasonOwner LeaseReason = "owner" // who owns the session took it back
	ReasonIdle  LeaseReason = "idle"  // the holder typed nothing for ControlIdle, and somebody asked
)

// A Lease says who controls a terminal. The agent owns it: every change raises
// Revision, and only a new holder raises Term.
type Lease struct {
	Revision uint64     `json:"revision"`
	Term     uint64     `json:"term"`
	Holder   UserID     `json:"holder,omitempty"` // empty when free
	GrantID  GrantID    `json:"grant_id,omitempty"`
	State    LeaseState `json:"state"`
	MSLeft   int64      `json:"ms_left,omitempty"` // of grace, in milliseconds
	Idle     bool       `json:"idle,omitempty"`    // a human holder has typed nothing for ControlIdle

	Reason LeaseReason `json:"reason,omitempty"` // why the holder has it; empty: it was free, or handed over
}

func (l Lease) check() error {
	switch l.State {
	case LeaseFree:
		if l.Holder != "" || l.GrantID != "" {
			return errors.New("free lease with a holder")
		}
		return nil
	case LeaseHeld, LeaseGrace:
		if l.Holder == AgentHolder && l.GrantID == "" {
			return nil
		}
		if err := checkID("grant_id", l.GrantID); err != nil {
			return err
		}
		return checkID("holder", l.Holder)
	}
	return fmt.Errorf("unknown lease state %q", string(l.State))
}

// TerminalParams are the params of OPEN for a terminal.
type TerminalParams struct {
	SessionID SessionID `json:"session_id"`
	PTYID     PTYID     `json:"pty_id"`
	Since     *Position `json:"since,omitempty"` // nil: the start of what a newcomer should see
}

// TerminalOpened is the result of OPENED for a terminal.
type TerminalOpened struct {
	Epoch   Epoch   `json:"epoch"`
	Offset  uint64  `json:"offset"`        // where DATA starts
	Head    uint64  `json:"head"`          // the log's end at this moment
	Gap     bool    `json:"gap,omitempty"` // Since could not be served: bytes are missing before Offset
	Cols    int     `json:"cols"`          // at Offset
	Rows    int     `json:"rows"`          // at Offset
	Creator UserID  `json:"creator,omitempty"`
	Claimed bool    `json:"claimed"` // somebody has controlled the terminal before
	Lease   Lease   `json:"lease"`
	Exited  *Exited `json:"exited,omitempty"` // the process is over; its EXITED still follows in order
	// Pacers are the pace-setters that the agent keeps: those of a lost tunnel
	// keep their place until they return, for at most ControlGrace.
	Pacers    []Pacer `json:"pacers,omitempty"`
	Recording string  `json:"recording,omitempty"` // id of the recording that runs
	Shared    Share   `json:"shared,omitempty"`    // to whose programs it is open; empty: ShareNone

	Agent *AgentReport `json:"agent,omitempty"` // the coding agent that is or was in front
	Turn  *AgentTurn   `json:"turn,omitempty"`  // the last finished turn of a coding agent
}

// Data carries output that starts at Offset.
type Data struct {
	Offset uint64
	Bytes  []byte
}

func (Data) FrameType() FrameType { return FrameData }

func (m Data) check() error {
	if len(m.Bytes) == 0 || len(m.Bytes) > MaxDataBytes {
		return fmt.Errorf("%d bytes of output", len(m.Bytes))
	}
	return nil
}

func (m Data) appendPayload(dst []byte) []byte {
	return append(binary.BigEndian.AppendUint64(dst, m.Offset), m.Bytes...)
}

func decodeData(f Frame) (Message, error) {
	if len(f.Payload) < dataHeaderBytes {
		return nil, malformed(f.Type, errors.New("short"))
	}
	return Data{binary.BigEndian.Uint64(f.Payload), f.Payload[dataHeaderBytes:]}, nil
}

// Resized says that the terminal's size changed at Offset.
type Resized struct {
	Offset uint64 `json:"offset"`
	Cols   int    `json:"cols"`
	Rows   int    `json:"rows"`
}

func (Resized) FrameType() FrameType { return FrameResized }
func (m Resized) check() error       { return checkSize(m.Cols, m.Rows) }

// Exited says that the terminal's process ended, by Code or by Signal.
type Exited struct {
	Offset uint64 `json:"offset"`
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"` // "SIGKILL", …; then Code is −1
}

func (Exited) FrameType() FrameType { return FrameExited }
func (Exited) check() error         { return nil }

// Reset says that the log can't continue at the relay's position: discard it
// and continue at (Epoch, Offset).
type Reset struct {
	Epoch  Epoch  `json:"epoch"`
	Offset uint64 `json:"offset"`
	Cols   int    `json:"cols"`
	Rows   int    `json:"rows"`
}

func (Reset) FrameType() FrameType { return FrameReset }
func (m Reset) check() error       { return checkSize(m.Cols, m.Rows) }

// Input carries keystrokes typed under Term. Seq counts the messages of one
// client; the agent writes each at most once.
type Input struct {
	Term   uint64
	Seq    uint64
	Client string // 1…MaxClientBytes
	Bytes  []byte
}

func (Input) FrameType() FrameType { return FrameInput }

func (m Input) check() error {
	if len(m.Bytes) == 0 || len(m.Bytes) > MaxInputBytes {
		return fmt.Errorf("%d bytes of input", len(m.Bytes))
	}
	return checkClient(m.Client)
}

func (m Input) appendPayload(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, m.Term)
	dst = binary.BigEndian.AppendUint64(dst, m.Seq)
	dst = append(dst, byte(len(m.Client)))
	dst = append(dst, m.Client...)
	return append(dst, m.Bytes...)
}

func decodeInput(f Frame) (Message, error) {
	p := f.Payload
	if len(p) < inputHeaderBytes || len(p) < inputHeaderBytes+int(p[inputHeaderBytes-1]) {
		return nil, malformed(f.Type, errors.New("short"))
	}
	n := inputHeaderBytes + int(p[inputHeaderBytes-1])
	return Input{
		Term:   binary.BigEndian.Uint64(p),
		Seq:    binary.BigEndian.Uint64(p[8:]),
		Client: string(p[inputHeaderBytes:n]),
		Bytes:  p[n:],
	}, nil
}

// InputAck says that all input of Client up to Seq was handed to write(2).
type InputAck struct {
	Seq    uint64
	Client string
}

func (InputAck) FrameType() FrameType { return FrameInputAck }
func (m InputAck) check() error       { return checkClient(m.Client) }

func (m InputAck) appendPayload(dst []byte) []byte {
	return append(binary.BigEndian.AppendUint64(dst, m.Seq), m.Client...)
}

func decodeInputAck(f Frame) (Message, error) {
	if len(f.Payload) < 8 {
		return nil, malformed(f.Type, errors.New("short"))
	}
	return InputAck{binary.BigEndian.Uint64(f.Payload), string(f.Payload[8:])}, nil
}

// A RefusalReason says why input was not written.
type RefusalReason string

const (
	RefusedNotController RefusalReason = "not_controller"
	RefusedStaleTerm     RefusalReason = "stale_term"    // typed under an earlier controller
	RefusedAgentRunning  RefusalReason = "agent_running" // the soft lock of seed 001
	RefusedBusy          RefusalReason = "busy"          // the queue is full
	RefusedEnded         RefusalReason = "ended"         // the process is over
	RefusedWaiting       RefusalReason = "waiting"       // the sandbox is not connected
)

// InputRefused says that one Input was not written.
type InputRefused struct {
	Seq    uint64        `json:"seq"`
	Client string        `json:"client"`
	Reason RefusalReason `json:"reason"`
}

func (InputRefused) FrameType() FrameType { return FrameInputRefused }
func (m InputRefused) check() error       { return checkClient(m.Client) }

// Resize asks for another size, under Term.
type Resize struct {
	Term       uint64
	Cols, Rows int
}

func (Resize) FrameType() FrameType { return FrameResize }
func (m Resize) check() error       { return checkSize(m.Cols, m.Rows) }

func (m Resize) appendPayload(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, m.Term)
	dst = binary.BigEndian.AppendUint16(dst, uint16(m.Cols))
	return binary.BigEndian.AppendUint16(dst, uint16(m.Rows))
}

func decodeResize(f Frame) (Message, error) {
	p := f.Payload
	if len(p) != 12 {
		return nil, malformed(f.Type, fmt.Errorf("%d bytes", len(p)))
	}
	return Resize{
		Term: binary.BigEndian.Uint64(p),
		Cols: int(binary.BigEndian.Uint16(p[8:])),
		Rows: int(binary.BigEndian.Uint16(p[10:])),
	}, nil
}

// LeaseNext is the holder a relay proposes; an empty Holder frees the lease.
type LeaseNext struct {
	Holder  UserID  `json:"holder,omitempty"`
	GrantID GrantID `json:"grant_id,omitempty"` // the holder's grant, which must carry "control"

	Reason LeaseReason `json:"reason,omitempty"` // owner: the grant must carry "admin" too; idle: the lease must be
}

// LeaseProposal asks for a change of the lease as it stood at ExpectRevision.
type LeaseProposal struct {
	ID             uint64    `json:"id"` // echoed in LEASED
	ExpectRevision uint64    `json:"expect_revision"`
	Next           LeaseNext `json:"next"`
}

func (LeaseProposal) FrameType() FrameType { return FrameLease }

func (m LeaseProposal) check() error {
	if m.Next.Holder == "" && m.Next.GrantID == "" {
		return nil
	}
	if m.Next.Holder == AgentHolder {
		return errors.New("holder is not a user")
	}
	if err := checkID("grant_id", m.Next.GrantID); err != nil {
		return err
	}
	if r := m.Next.Reason; r != "" && r != ReasonOwner && r != ReasonIdle {
		return fmt.Errorf("unknown reason %q", string(r))
	}
	return checkID("holder", m.Next.Holder)
}

// Leased reports the current lease: in answer to the proposal ID, or with ID 0
// because the agent changed it.
type Leased struct {
	ID      uint64 `json:"id,omitempty"`
	Lease   Lease  `json:"lease"`
	Refused string `json:"refused,omitempty"` // why the proposal was not taken; empty when it was
}

func (Leased) FrameType() FrameType { return FrameLeased }
func (m Leased) check() error       { return m.Lease.check() }

// GrantAdd adds a viewer's grant to the stream.
type GrantAdd struct {
	Handle uint64 `json:"handle,omitempty"` // comes back with GRANTED
	Grant  string `json:"grant"`
}

func (GrantAdd) FrameType() FrameType { return FrameGrant }

func (m GrantAdd) check() error {
	if m.Grant == "" || len(m.Grant) > MaxTokenBytes {
		return errors.New("grant size")
	}
	return nil
}

// GrantDrop removes a grant from the stream.
type GrantDrop struct {
	GrantID GrantID `json:"jti"`
}

func (GrantDrop) FrameType() FrameType { return FrameUngrant }
func (m GrantDrop) check() error       { return checkID("jti", m.GrantID) }

// Granted answers GrantAdd; Refused is empty if the grant was accepted. If it
// is revoked later, another Granted with its handle refuses it.
type Granted struct {
	Handle  uint64  `json:"handle,omitempty"` // of GrantAdd, whatever that contained
	GrantID GrantID `json:"jti,omitempty"`    // empty if the grant was unreadable
	Refused string  `json:"refused,omitempty"`
}

func (Granted) FrameType() FrameType { return FrameGranted }
func (Granted) check() error         { return nil }

// Holder reports how many sockets a user has at the relay. The agent starts the
// grace when the holder's count falls to 0 and ends it when it rises.
type Holder struct {
	User    UserID `json:"user"`
	Sockets int    `json:"sockets"`
}

func (Holder) FrameType() FrameType { return FrameHolder }

func (m Holder) check() error {
	if m.Sockets < 0 {
		return errors.New("negative sockets")
	}
	return checkID("user", m.User)
}

// Audience says how many sockets of viewers the relay has at the terminal.
type Audience struct {
	Sockets int `json:"sockets"`
}

func (Audience) FrameType() FrameType { return FrameAudience }

func (m Audience) check() error {
	if m.Sockets < 0 {
		return errors.New("negative sockets")
	}
	return nil
}

func checkSize(cols, rows int) error {
	if cols < MinCols || cols > MaxCols || rows < MinRows || rows > MaxRows {
		return fmt.Errorf("size %d×%d", cols, rows)
	}
	return nil
}

func checkClient(client string) error {
	if client == "" || len(client) > MaxClientBytes {
		return fmt.Errorf("client of %d bytes", len(client))
	}
	if !utf8.ValidString(client) {
		return errors.New("client is not UTF-8") // JSON would spell it differently in INPUT_REFUSED
	}
	return nil
}
