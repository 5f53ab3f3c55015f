package audit

import (
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"

	"github.com/fairlead/fairlead/protocol"
)

// Expect says what a log must agree with. Every member is optional.
type Expect struct {
	Sandbox protocol.SandboxID
	Device  string // thumbprint of the device key
	First   uint64 // number of the first file's first record, see [FileSequence]
	// Heads are those that a control plane keeps: each must be in the log, unless
	// it is older than the first file. Only they reveal a log that was cut exactly
	// behind an older head.
	Heads []protocol.AuditHead
}

// A Report is what a log says of itself.
type Report struct {
	Sandbox protocol.SandboxID
	Device  string             // thumbprint of the signing key; unverified unless [Expect.Device] is set
	First   uint64             // number of the first record, 0: none
	Last    uint64             // number of the last record that was verified
	Head    protocol.AuditHead // the newest one; Sequence 0: none
	Records map[Kind]int
	Notes   []string // remarks that are no faults; at most 100
}

// maxNotes bounds a Report's notes.
const maxNotes = 100

// A Verifier reads the files of one log in order, and finds the first damaged
// record. It is not safe for concurrent use.
type Verifier struct {
	expect Expect
	heads  map[uint64]string // expected hashes, by number

	report Report
	key    *ecdsa.PublicKey
	prev   string // hash of the last line
	signed uint64 // number of the newest head, or the start of the first file
	err    error
}

// NewVerifier returns a Verifier for one log.
func NewVerifier(expect Expect) *Verifier {
	v := &Verifier{expect: expect, heads: make(map[uint64]string), report: Report{Records: make(map[Kind]int)}}
	for _, h := range expect.Heads {
		v.heads[h.Sequence] = h.Hash
		if v.expect.Sandbox == "" {
			v.expect.Sandbox = h.SandboxID // the log's sandbox
		}
	}
	return v
}

// File reads the next file. An error is a [*Fault] or one of reading r.
func (v *Verifier) File(r io.Reader) error {
	if v.err == nil {
		v.err = v.file(newLines(r))
	}
	return v.err
}

// Report returns what was read so far, and File's error. If that is nil, the
// files must be the whole log: it fails with a [*Fault] if its end was cut off.
func (v *Verifier) Report() (Report, error) {
	if v.err != nil {
		return v.report, v.err
	}
	last := v.report.Last
	if last == 0 {
		return v.report, fault(max(v.expect.First, 1), CutOff, "the log is empty")
	}
	if v.report.Head.Sequence != last {
		return v.report, fault(last+1, CutOff, "the log ends with record %d, and no signed head vouches for records %d to %d", last, v.signed+1, last)
	}
	for _, h := range v.expect.Heads {
		if h.Sequence == v.report.First {
			return v.report, fault(h.Sequence, Changed, "it isn't the one whose head the control plane has")
		}
		if h.Sequence > last {
			return v.report, fault(last+1, CutOff, "the log ends with record %d, but the control plane has the head of record %d", last, h.Sequence)
		}
	}
	return v.report, nil
}

func (v *Verifier) file(in *lines) error {
	for first := true; ; first = false {
		l, err := in.next()
		if errors.Is(err, io.EOF) {
			if first {
				return fault(v.next(), CutOff, "the file is empty")
			}
			return nil
		}
		if err != nil {
			return err
		}
		if err := v.record(in, l, first); err != nil {
			return err
		}
	}
}

// next returns the number that the next record must have; the first one's is
// only known from the caller.
func (v *Verifier) next() uint64 {
	if v.report.Last == 0 {
		return max(v.expect.First, 1)
	}
	return v.report.Last + 1
}

func (v *Verifier) record(in *lines, l line, first bool) error {
	want := v.next()
	if l.torn {
		return fault(want, CutOff, "the file ends in the middle of it")
	}
	r, err := decode(l.text)
	if err != nil {
		return fault(want, Changed, "it can't be read")
	}
	if v.report.Last == 0 && v.expect.First == 0 && r.Opened != nil {
		want = r.Sequence
	}
	if r.Sequence != want || first && r.Opened == nil {
		return v.misplaced(in, r, want)
	}
	if err := v.linked(in, l, r); err != nil {
		return err
	}
	if err := v.content(in, l, r); err != nil {
		return err
	}
	// The first record's number may be wrong, as the second will show.
	if hash, ok := v.heads[r.Sequence]; ok && v.report.Last != 0 && (r.Head == nil || hash != v.report.Head.Hash) {
		return fault(r.Sequence, Changed, "it isn't the one whose head the control plane has")
	}
	v.advance(r, l)
	return nil
}

// misplaced finds out why r is where record want should be.
func (v *Verifier) misplaced(in *lines, r *Record, want uint64) error {
	switch {
	case r.Sequence == want: // a file begins with it
		return fault(want, Changed, "a file must begin by saying whose log it is")
	case v.prev != "" && r.Prev == v.prev:
		return fault(want, Changed, "its number is %d", r.Sequence)
	case r.Sequence < want && r.Opened == nil && v.report.First == v.report.Last && v.report.Last != 0:
		// The only earlier record is the first, whose number was trusted.
		return fault(r.Sequence-1, Changed, "its number is %d", v.report.Last)
	case r.Sequence < want:
		return fault(r.Sequence, Reordered, "it stands behind record %d", want-1)
	case in.holds(want):
		return fault(want, Reordered, "record %d stands in its place", r.Sequence)
	case r.Sequence == want+1:
		return fault(want, Deleted, "record %d stands in its place", r.Sequence)
	}
	return fault(want, Deleted, "so were all up to record %d", r.Sequence-1)
}

// linked checks that r follows the record before it. If not, one of the two was
// changed: not r, if the record after r agrees with it.
func (v *Verifier) linked(in *lines, l line, r *Record) error {
	prev := v.prev
	switch {
	case r.Sequence == 1 || r.Opened != nil && r.Opened.After != "":
		prev = noPrev
	case prev == "":
		return nil // the first file's predecessor isn't here
	}
	if r.Prev == prev {
		return nil
	}
	intact := false
	if r.Head != nil {
		intact = v.signedBy(l, r)
	} else if next := in.peek(); next != nil {
		intact = next.Prev == lineHash(l.text)
	}
	if intact && v.prev != "" && prev != noPrev {
		return fault(r.Sequence-1, Changed, "its hash isn't the one in record %d", r.Sequence)
	}
	return fault(r.Sequence, Changed, "it doesn't follow record %d", r.Sequence-1)
}

// content checks what is special to some kinds of records.
func (v *Verifier) content(in *lines, l line, r *Record) error {
	switch {
	case r.Opened != nil:
		return v.opened(in, l, r)
	case r.Head == nil:
		return nil
	case v.signedBy(l, r):
		v.report.Head = protocol.AuditHead{SandboxID: v.report.Sandbox, Sequence: r.Sequence, Hash: headHash(l.text), At: r.At}
		return nil
	}
	if next := in.peek(); next != nil && next.Prev == lineHash(l.text) {
		return fault(v.signed+1, Changed, "it or one up to record %d was written again: record %d is not signed by the device", r.Sequence-1, r.Sequence)
	}
	return fault(r.Sequence, Changed, "the device's signature doesn't fit it and records %d to %d", v.signed+1, r.Sequence-1)
}

func (v *Verifier) signedBy(l line, r *Record) bool {
	return verify(v.key, protocol.AuditTranscript(v.report.Sandbox, r.Sequence, headHash(l.text)), r.Head.Signature)
}

// opened checks the log's identity at a file's beginning.
func (v *Verifier) opened(in *lines, l line, r *Record) error {
	o := r.Opened
	if o.Format != Format {
		if next := in.peek(); next == nil || next.Prev != lineHash(l.text) {
			return fault(r.Sequence, Changed, "its format is %d", o.Format)
		}
		return fault(r.Sequence, Foreign, "format %d is not known here", o.Format)
	}
	key, err := o.Key.public()
	if err != nil || o.Key.Thumbprint() != o.Device {
		return fault(r.Sequence, Changed, "it names no usable device key")
	}
	sandbox, device := v.expect.Sandbox, v.expect.Device
	if v.key != nil {
		sandbox, device = v.report.Sandbox, v.report.Device
	}
	if sandbox != "" && o.Sandbox != sandbox {
		if next := in.peek(); next != nil && next.Prev != lineHash(l.text) {
			return fault(r.Sequence, Changed, "it is of sandbox %s", o.Sandbox)
		}
		return fault(r.Sequence, Foreign, "it is of sandbox %s", o.Sandbox)
	}
	if device != "" && o.Device != device {
		return fault(r.Sequence, Foreign, "it is of another device key, %s", o.Device)
	}
	v.key, v.report.Sandbox, v.report.Device = key, o.Sandbox, o.Device
	return nil
}

func (v *Verifier) advance(r *Record, l line) {
	if v.report.First == 0 {
		v.report.First, v.signed = r.Sequence, r.Sequence-1
		if r.Sequence > 1 {
			v.note("begins with record %d; those before it are in earlier files", r.Sequence)
		}
	}
	switch {
	case r.Head != nil:
		v.signed = r.Sequence
	case r.Opened != nil && r.Opened.After != "":
		v.note("record %d begins anew: %s", r.Sequence, r.Opened.After)
	case r.Resumed != nil && r.Resumed.Dropped > 0:
		v.note("record %d: %d bytes of a record that a crash had cut were dropped", r.Sequence, r.Resumed.Dropped)
	case r.Lost != nil && r.Lost.Syncs > 0:
		v.note("record %d: %d lease changes, %d approvals and %d envelopes of sealed sync were not recorded", r.Sequence, r.Lost.Leases, r.Lost.Approvals, r.Lost.Syncs)
	case r.Lost != nil && r.Lost.Approvals > 0:
		v.note("record %d: %d lease changes and %d approvals were not recorded", r.Sequence, r.Lost.Leases, r.Lost.Approvals)
	case r.Lost != nil:
		v.note("record %d: %d lease changes were not recorded", r.Sequence, r.Lost.Leases)
	}
	v.report.Last, v.prev = r.Sequence, lineHash(l.text)
	v.report.Records[r.Kind]++
}

func (v *Verifier) note(format string, args ...any) {
	if len(v.report.Notes) < maxNotes {
		v.report.Notes = append(v.report.Notes, fmt.Sprintf(format, args...))
	}
}
