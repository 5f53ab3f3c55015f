// Package audit is the format of an agent's audit log: JSON lines that each
// hold the hash of the line before, and heads signed by the device key. It
// encodes records, and finds the first one that was deleted, changed, reordered
// or cut off. README.md beside this file describes the log.
package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// Format is the version of the log, in each file's first record.
	Format = 1
	// MaxLineBytes bounds a record with its line end.
	MaxLineBytes = 16 << 10
	// maxText bounds a string in a record; longer ones are cut.
	maxText = 256
)

// A Kind says what a record is about.
type Kind string

const (
	KindOpened   Kind = "opened"   // a file begins
	KindResumed  Kind = "resumed"  // a process continues a file
	KindCommand  Kind = "command"  // a command was executed
	KindLease    Kind = "lease"    // control of a terminal changed
	KindApproval Kind = "approval" // somebody decided what a sandbox may do
	KindSync     Kind = "sync"     // a person's browser has sent cookies
	KindLost     Kind = "lost"     // changes that could not be recorded
	KindHead     Kind = "head"     // the device signs all records so far
)

// A Record is one line. Exactly one of its pointers is set, the one that Kind
// names.
type Record struct {
	Sequence uint64    `json:"seq"` // from 1, without a hole
	At       int64     `json:"at"`  // Unix milliseconds
	Kind     Kind      `json:"kind"`
	Prev     string    `json:"prev"` // hash of the line before, 64 hexadecimal digits
	Opened   *Opened   `json:"opened,omitempty"`
	Resumed  *Resumed  `json:"resumed,omitempty"`
	Command  *Command  `json:"command,omitempty"`
	Lease    *Lease    `json:"lease,omitempty"`
	Approval *Approval `json:"approval,omitempty"`
	Sync     *Sync     `json:"sync,omitempty"`
	Lost     *Lost     `json:"lost,omitempty"`
	Head     *Head     `json:"head,omitempty"` // last, for what it signs ends before it
}

// Opened identifies the log. It is the first record of every file.
type Opened struct {
	Format  int                `json:"format"`
	Sandbox protocol.SandboxID `json:"sandbox"`
	Device  string             `json:"device"` // RFC 7638 thumbprint of Key
	Key     Key                `json:"key"`    // signs the heads
	// After says why the file doesn't continue the one before: then Prev is that
	// of a first record.
	After string `json:"after,omitempty"`
}

// Resumed says that a new process writes from here on.
type Resumed struct {
	Dropped int64 `json:"dropped"` // bytes of an incomplete last line after a crash
}

// A Command records an executed command, without its op's content.
type Command struct {
	ID       protocol.CommandID `json:"id"`
	Trace    protocol.TraceID   `json:"trace,omitempty"`
	Op       string             `json:"op,omitempty"` // op.kind
	Session  protocol.SessionID `json:"session,omitempty"`
	PTY      protocol.PTYID     `json:"pty,omitempty"`
	User     protocol.UserID    `json:"user,omitempty"`  // who asked for it
	Grant    protocol.GrantID   `json:"grant,omitempty"` // under what
	Status   string             `json:"status"`          // as in an [protocol.ExecutionCallback]
	Error    string             `json:"error,omitempty"` // its name
	Duration int64              `json:"ms,omitempty"`    // milliseconds
}

// A Lease is the lease of a terminal after a change.
type Lease struct {
	Session  protocol.SessionID  `json:"session"`
	PTY      protocol.PTYID      `json:"pty"`
	Revision uint64              `json:"revision"`
	Term     uint64              `json:"term"`
	State    protocol.LeaseState `json:"state"`
	Holder   protocol.UserID     `json:"holder,omitempty"`
	Grant    protocol.GrantID    `json:"grant,omitempty"`
	Cause    string              `json:"cause,omitempty"`
}

// An Approval records a decision, that nobody decided in time, or that nobody
// needs one any more.
type Approval struct {
	ID       string             `json:"id"`
	Session  protocol.SessionID `json:"session,omitempty"`
	PTY      protocol.PTYID     `json:"pty,omitempty"`
	About    string             `json:"about"`
	Decision string             `json:"decision"`
	User     protocol.UserID    `json:"user,omitempty"`
	Grant    protocol.GrantID   `json:"grant,omitempty"`
	Remember string             `json:"remember,omitempty"` // of a coding agent's tool: what needs no approval any more
	Command  protocol.CommandID `json:"command,omitempty"`  // by which it was decided
}

// A Sync records what came of an envelope of sealed sync whose sequence counted: no
// cookie, only how many.
type Sync struct {
	Session  protocol.SessionID `json:"session"`
	Pairing  protocol.PairingID `json:"pairing"`
	User     protocol.UserID    `json:"user,omitempty"`     // who has paired
	Hostname string             `json:"hostname,omitempty"` // as the envelope has it
	Sequence int64              `json:"sequence"`
	Written  int                `json:"written"`
	Dropped  int                `json:"dropped"`
	Refused  int                `json:"refused"`
	Removed  int                `json:"removed,omitempty"`
	Error    string             `json:"error,omitempty"` // its name, if it could not all be written
}

// Lost counts changes that should be recorded here and couldn't be.
type Lost struct {
	Leases    uint64 `json:"leases"`              // changes of leases
	Approvals uint64 `json:"approvals,omitempty"` // approvals that were decided or have expired
	Syncs     uint64 `json:"syncs,omitempty"`     // envelopes
}

// Head holds a signature by the device key over [protocol.AuditTranscript] of
// this record's number and hash, see [Chain.Head].
type Head struct {
	Signature []byte `json:"signature"`
}

// errRecord says that a line is no record in its canonical form.
var errRecord = errors.New("not a record")

// content returns the kind of r's content; empty unless it has exactly one.
func (r *Record) content() Kind {
	var kind Kind
	n := 0
	for _, part := range []struct {
		kind Kind
		set  bool
	}{
		{KindOpened, r.Opened != nil}, {KindResumed, r.Resumed != nil}, {KindCommand, r.Command != nil},
		{KindLease, r.Lease != nil}, {KindApproval, r.Approval != nil}, {KindSync, r.Sync != nil}, {KindLost, r.Lost != nil}, {KindHead, r.Head != nil},
	} {
		if part.set {
			kind = part.kind
			n++
		}
	}
	if n != 1 {
		return ""
	}
	return kind
}

// encode returns the line of r with its end.
func (r *Record) encode() []byte {
	body, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("audit: record of plain values: %v", err))
	}
	return append(body, '\n')
}

// decode reads a line with its line feed. Each record has one spelling, the one
// that encode writes.
func decode(line []byte) (*Record, error) {
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, errRecord
	}
	if r.Sequence == 0 || r.Kind == "" || r.Kind != r.content() || !bytes.Equal(r.encode(), line) {
		return nil, errRecord
	}
	return &r, nil
}

// tidied returns a copy of r with bounded strings in valid UTF-8, so that it
// reads back unchanged.
func (r Record) tidied() Record {
	switch {
	case r.Opened != nil:
		o := *r.Opened
		tidy(&o.After)
		r.Opened = &o
	case r.Command != nil:
		c := *r.Command
		tidy(&c.ID)
		tidy(&c.Trace)
		tidy(&c.Op, &c.Status, &c.Error)
		tidy(&c.Session)
		tidy(&c.PTY)
		tidy(&c.User)
		tidy(&c.Grant)
		r.Command = &c
	case r.Lease != nil:
		l := *r.Lease
		tidy(&l.Session)
		tidy(&l.PTY)
		tidy(&l.State)
		tidy(&l.Holder)
		tidy(&l.Grant)
		tidy(&l.Cause)
		r.Lease = &l
	case r.Approval != nil:
		a := *r.Approval
		tidy(&a.ID, &a.About, &a.Decision, &a.Remember)
		tidy(&a.Session)
		tidy(&a.PTY)
		tidy(&a.User)
		tidy(&a.Grant)
		tidy(&a.Command)
		r.Approval = &a
	case r.Sync != nil:
		y := *r.Sync
		tidy(&y.Session)
		tidy(&y.Pairing)
		tidy(&y.User)
		tidy(&y.Hostname, &y.Error)
		r.Sync = &y
	}
	return r
}

func tidy[T ~string](fields ...*T) {
	for _, f := range fields {
		text := string(*f)
		*f = T(strings.ToValidUTF8(text[:min(len(text), maxText)], "\uFFFD"))
	}
}
