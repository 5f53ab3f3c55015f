package audit

import "fmt"

// A Nature says what happened to a record.
type Nature string

const (
	Deleted   Nature = "deleted"
	Changed   Nature = "changed"
	Reordered Nature = "reordered"
	CutOff    Nature = "cut_off" // it and what followed, or nothing vouches for the end
	Foreign   Nature = "foreign" // of another sandbox or device
)

// A Fault says why a log can't be trusted, from which record on.
type Fault struct {
	Sequence uint64 // of the first bad record
	Nature   Nature
	Detail   string
}

func (f *Fault) Error() string {
	what := map[Nature]string{
		Deleted: "was deleted", Changed: "was changed", Reordered: "is not in its place",
		CutOff: "was cut off", Foreign: "does not belong here",
	}[f.Nature]
	return fmt.Sprintf("record %d %s: %s", f.Sequence, what, f.Detail)
}

func fault(sequence uint64, nature Nature, format string, args ...any) *Fault {
	return &Fault{sequence, nature, fmt.Sprintf(format, args...)}
}
