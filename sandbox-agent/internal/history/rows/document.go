package rows

import (
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/protocol"
)

// A Document is a session that its program doesn't keep as lines which are only
// ever appended: it is read as a whole.
type Document struct {
	About About
	Rows  []Row // with results merged
}

// A drafter puts a Document together.
type drafter struct {
	doc   Document
	seen  map[string]int // how often each id was used
	calls map[string]int // where the use of a tool is
}

func newDrafter() *drafter {
	return &drafter{seen: make(map[string]int), calls: make(map[string]int)}
}

// add adds a row. Of rows with equal ids, which follow from what is said, the
// later ones have another id: none is lost to a client that merges by ids.
func (d *drafter) add(r Row) {
	d.seen[r.ID]++
	if n := d.seen[r.ID]; n > 1 {
		r.ID += "_r" + strconv.Itoa(n)
	}
	switch r.Kind {
	case protocol.ChatToolUse:
		d.calls[r.ToolID] = len(d.doc.Rows)
	case protocol.ChatToolResult:
		if i, known := d.calls[r.ToolID]; known {
			Merge(&d.doc.Rows[i], &r)
		}
	}
	d.doc.Rows = append(d.doc.Rows, r)
}

// once adds a row, unless there is one with its id.
func (d *drafter) once(r Row) {
	if d.seen[r.ID] == 0 {
		d.add(r)
	}
}

// say adds what was said, if anything.
func (d *drafter) say(id, at string, kind protocol.ChatKind, role, text string) {
	if strings.TrimSpace(text) == "" {
		return
	}
	if role == "user" && d.doc.About.Said == "" {
		d.doc.About.Said = cut(text, maxSaid)
	}
	d.add(say(id, at, kind, role, text))
}
