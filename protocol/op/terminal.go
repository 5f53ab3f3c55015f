package op

import "github.com/fairlead/fairlead/protocol"

// Kinds of operations on sessions.
const (
	KindSessionCreate = "session.create"
	KindSessionDelete = "session.delete"
)

var sessions = []Spec{
	{Kind: KindSessionCreate, Needs: protocol.CapAdmin, Target: TargetNewSession, Lane: LaneSession, Body: (*SessionCreate)(nil)},
	{Kind: KindSessionDelete, Needs: protocol.CapAdmin, Target: TargetSession, Lane: LaneEnd, Body: (*Plain)(nil)},
}

// SessionCreate is the body of session.create.
type SessionCreate struct {
	Egress *bool `json:"egress,omitempty"` // terminals go through the egress proxy; absent: as the sandbox is set up
}

// Check accepts everything.
func (SessionCreate) Check() error { return nil }

// Kinds of operations on terminals.
const (
	KindPTYCreate     = "pty.create"
	KindPTYClose      = "pty.close"
	KindPTYSignal     = "pty.signal"
	KindRecordStart   = "record.start"
	KindRecordStop    = "record.stop"
	KindPTYResize     = "pty.resize"
	KindTerminalShare = "terminal.share"
)

var terminals = []Spec{
	{Kind: KindPTYCreate, Needs: protocol.CapShell, Target: TargetNewTerminal, Body: (*PTYCreate)(nil)},
	{Kind: KindPTYClose, Needs: protocol.CapShell, Target: TargetTerminal, Body: (*Plain)(nil)},
	{Kind: KindPTYSignal, Needs: protocol.CapShell, Target: TargetTerminal, Body: (*PTYSignal)(nil)},
	{Kind: KindRecordStart, Needs: protocol.CapRecord, Target: TargetTerminal, Body: (*Plain)(nil)},
	{Kind: KindRecordStop, Needs: protocol.CapRecord, Target: TargetTerminal, Body: (*Plain)(nil)},
	{Kind: KindPTYResize, Needs: protocol.CapShell, Target: TargetTerminal, Body: (*PTYResize)(nil)},
	{Kind: KindTerminalShare, Needs: protocol.CapControl, Target: TargetTerminal, Body: (*TerminalShare)(nil)},
}

const maxUint16 = 1<<16 - 1

// PTYCreate is the body of pty.create.
type PTYCreate struct {
	CreatorID protocol.UserID `json:"creatorId,omitempty"` // may claim control when first attached
	// CreatorName is the creator's display name, set by the control plane.
	CreatorName string `json:"creatorName,omitempty"`

	Command string   `json:"command,omitempty"` // run by sh -c; default: the login shell
	Args    []string `json:"args,omitempty"`    // with Command: argv, no shell in between
	Dir     string   `json:"dir,omitempty"`     // below the workspace
	Cols    int      `json:"cols,omitempty"`
	Rows    int      `json:"rows,omitempty"`
	Record  bool     `json:"record,omitempty"` // record it from its first byte
	Egress  *bool    `json:"egress,omitempty"` // goes through the egress proxy; absent: as its session
	// Conversation is one that goes on in the terminal: its coding agent's program
	// resumes it there. The sandbox knows what to run, where, and as whom.
	Conversation protocol.ConversationID `json:"conversation,omitempty"`
	// Shell is one of seed 002's web client, which decides the terminal's id.
	Shell *Shell `json:"shell,omitempty"`

	Spawn    Spawn    `json:"spawn,omitempty"`     // when the program starts; absent: eager
	OnDetach OnDetach `json:"on_detach,omitempty"` // when nobody watches any more; absent: keep
}

// Check refuses an impossible size, where 0 means the default, a conversation or a
// shell beside what else there is to run, and what is no way to begin or to end.
func (b *PTYCreate) Check() error {
	if b.Shell != nil {
		if b.Conversation != "" || b.Command != "" || len(b.Args) > 0 || b.Dir != "" {
			return protocol.Errorf(protocol.KindInvalid, "with op.shell there is no op.conversation, op.command, op.args or op.dir")
		}
		if err := b.Shell.Check(); err != nil {
			return err
		}
	}
	if b.Conversation != "" {
		if !protocol.ValidConversation(b.Conversation) {
			return protocol.Errorf(protocol.KindInvalid, "op.conversation is not an id")
		}
		if b.Command != "" || len(b.Args) > 0 || b.Dir != "" || b.Egress != nil {
			return protocol.Errorf(protocol.KindInvalid, "with op.conversation there is no op.command, op.args, op.dir or op.egress")
		}
	}
	if b.Cols < 0 || b.Rows < 0 || b.Cols > maxUint16 || b.Rows > maxUint16 {
		return protocol.Errorf(protocol.KindInvalid, "op.cols and op.rows must be from 0 (default) to %d", maxUint16)
	}
	if !b.Spawn.Valid() {
		return protocol.Errorf(protocol.KindInvalid, "op.spawn must be %q or %q", SpawnEager, SpawnLazy)
	}
	if !b.OnDetach.Valid() {
		return protocol.Errorf(protocol.KindInvalid, "op.on_detach must be %q, %q or a duration from %v to %v, such as \"30m\"",
			DetachKeep, DetachClose, MinOnDetach, MaxOnDetach)
	}
	return nil
}

// AskedBy makes user the creator. It refuses another one, and a display name. Who
// goes on with a conversation must be allowed to write in it, and to approve: what
// the coding agent asks there is answered by whoever types.
func (b *PTYCreate) AskedBy(user protocol.UserID) ([]protocol.Capability, error) {
	if b.CreatorID != "" && b.CreatorID != user {
		return nil, protocol.Errorf(protocol.KindForbidden, "op.creatorId can only be yourself")
	}
	if b.CreatorName != "" {
		return nil, protocol.Errorf(protocol.KindForbidden, "op.creatorName is not yours to say")
	}
	b.CreatorID = user
	var needs []protocol.Capability
	if b.Record {
		needs = append(needs, protocol.CapRecord)
	}
	if b.Conversation != "" || b.Shell != nil && b.Shell.Resumes() {
		needs = append(needs, protocol.CapChat, protocol.CapApprove)
	}
	return needs, nil
}

// Complete fills in the terminal of a shell, which follows from what it is.
func (b *PTYCreate) Complete(t *protocol.CommandTarget) error {
	if b.Shell == nil {
		return nil
	}
	id := b.Shell.PTYID(t.SessionID)
	if t.PTYID != "" && t.PTYID != id {
		return protocol.Errorf(protocol.KindInvalid, "the id of a shell's terminal follows from op.shell")
	}
	t.PTYID = id
	return nil
}

// PTYSignal is the body of pty.signal.
type PTYSignal struct {
	Signal string `json:"signal"` // "INT", "TERM", "KILL", "HUP", "QUIT", "TSTP", "CONT", "WINCH", "USR1", "USR2"
}

// Check requires a signal. The sandbox knows which ones exist.
func (b *PTYSignal) Check() error {
	if b.Signal == "" {
		return protocol.Errorf(protocol.KindInvalid, "op.signal is missing")
	}
	return nil
}

// PTYResize is the body of pty.resize.
type PTYResize struct {
	Cols int `json:"cols"`
	Rows int `json:"rows"`
}

// Check reports a size out of bounds.
func (b *PTYResize) Check() error {
	if b.Cols < protocol.MinCols || b.Cols > protocol.MaxCols || b.Rows < protocol.MinRows || b.Rows > protocol.MaxRows {
		return protocol.Errorf(protocol.KindInvalid, "op.cols must be from %d to %d, op.rows from %d to %d",
			protocol.MinCols, protocol.MaxCols, protocol.MinRows, protocol.MaxRows)
	}
	return nil
}

// TerminalShare is the body of terminal.share.
type TerminalShare struct {
	PTY  protocol.PTYID `json:"pty,omitempty"` // the terminal that is opened: the target's
	With protocol.Share `json:"with"`
}

// Check requires a terminal, "session" or "none".
func (b *TerminalShare) Check() error {
	if !b.With.Valid() {
		return protocol.Errorf(protocol.KindInvalid, "op.with must be the id of a terminal, %q or %q", protocol.ShareSession, protocol.ShareNone)
	}
	if b.PTY != "" && !protocol.ValidID(b.PTY) {
		return protocol.Errorf(protocol.KindInvalid, "op.pty is not an id")
	}
	return nil
}

// Complete fills in the terminal if the target lacks it: the op, the target, or
// both equally may name it.
func (b *TerminalShare) Complete(t *protocol.CommandTarget) error {
	switch {
	case b.PTY == "":
	case t.PTYID == "":
		t.PTYID = b.PTY
	case t.PTYID != b.PTY:
		return protocol.Errorf(protocol.KindInvalid, "op.pty and target.ptyId name two terminals")
	}
	return nil
}
