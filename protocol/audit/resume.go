package audit

import (
	"bytes"
	"errors"
)

// A Resumption is where a writer can continue a file.
type Resumption struct {
	Chain    Chain
	Size     int64 // bytes of whole records
	Dropped  int64 // bytes after them, left by a crash
	Unsigned int   // records that no head signs yet
	// Fault says why the file can't be continued. Chain is then for a new one, see
	// [Chain.AppendBreak]: its number is above all in this file.
	Fault *Fault
}

// Resume examines the newest file of a log, whose first record is expect.First.
// A crash may have cut its last line, or left zeros where a block never reached
// the disk; any other damage is a Fault. A chain without a record means that
// the crash came before the first one.
func Resume(data []byte, expect Expect) Resumption {
	v := NewVerifier(expect)
	in := newLines(bytes.NewReader(data))
	var r Resumption
	for first := true; ; first = false {
		l, err := in.next()
		if err != nil || l.torn || bytes.IndexByte(l.text, 0) >= 0 {
			break
		}
		if err := v.record(in, l, first); err != nil {
			if !errors.As(err, &r.Fault) {
				r.Fault = fault(expect.First, Changed, "it can't be read: %v", err)
			}
			break
		}
		r.Size += int64(len(l.text))
	}
	r.Dropped = int64(len(data)) - r.Size
	r.Chain = Chain{last: v.report.Last, prev: v.prev}
	r.Unsigned = int(v.report.Last - v.signed)
	if r.Fault != nil {
		// Each line may be a record, damaged or not.
		lines := uint64(bytes.Count(data, []byte("\n")))
		r.Chain = Chain{last: max(v.report.Last, expect.First-1+lines, expect.First)}
	}
	return r
}
