package dbread

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
)

// cursor is the database of cursor-agent, which keeps a session in two tables. meta has, as JSON in hexadecimal
// digits, the id of the latest root. blobs are named by their SHA-256: a message
// is JSON; what isn't is a protobuf message whose field 1 names the blobs below
// it, in order, and field 9 of the root is the folder. This follows what others
// have seen, for the program isn't in any package registry: it was not tried
// with it.
type cursor struct{}

const (
	cursorBelow     = 1
	cursorWorkspace = 9

	maxBlobs     = 20_000
	maxCursorTop = 8 // messages of Session.Head
)

// cursorAbout is what meta says.
type cursorAbout struct {
	Name    string          `json:"name"`
	Root    string          `json:"latestRootBlobId"`
	Created json.RawMessage `json:"createdAt"`
}

// cursorUntitled is the name of a session to which nobody has given one.
const cursorUntitled = "New Agent"

func cursorMeta(ctx context.Context, db *sql.DB) (about cursorAbout, err error) {
	var text string
	if err := db.QueryRowContext(ctx, `SELECT value FROM meta WHERE key = '0' AND length(value) <= ?`, maxValue).Scan(&text); err != nil {
		return about, err
	}
	decoded := []byte(text)
	if raw, err := hex.DecodeString(text); err == nil {
		decoded = raw
	}
	return about, json.Unmarshal(decoded, &about)
}

// A cursorWalk gathers the messages below a root.
type cursorWalk struct {
	ctx   context.Context
	db    *sql.DB
	most  int // messages
	left  budget
	seen  int
	dir   string
	found []rows.Stored
}

// blob returns a blob, nil when there is none.
func (w *cursorWalk) blob(id string) ([]byte, error) {
	if w.seen++; w.seen > maxBlobs {
		return nil, errFull
	}
	var data []byte
	err := w.db.QueryRowContext(w.ctx, `SELECT data FROM blobs WHERE id = ? AND length(data) <= ?`, id, maxValue).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err == nil {
		err = w.left.take(len(data))
	}
	return data, err
}

// below gathers what is below a blob, down to a depth, from the end if back.
func (w *cursorWalk) below(id string, depth int, back bool) error {
	if len(w.found) >= w.most || depth == 0 {
		return nil
	}
	data, err := w.blob(id)
	if err != nil || len(data) == 0 {
		return err
	}
	if bytes.HasPrefix(data, []byte("{")) {
		if json.Valid(data) {
			w.found = append(w.found, rows.Stored{ID: id, Data: data})
		}
		return nil
	}
	children, dir := cursorChildren(data)
	if w.dir == "" {
		w.dir = dir
	}
	if back {
		slices.Reverse(children)
	}
	for _, child := range children {
		if err := w.below(child, depth-1, back); err != nil {
			return err
		}
	}
	return nil
}

// cursorChildren returns the blobs that a blob names, and the folder.
func cursorChildren(data []byte) (children []string, dir string) {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return children, dir
		}
		data = data[n:]
		size := protowire.ConsumeFieldValue(number, kind, data)
		if size < 0 {
			return children, dir
		}
		if value, n := protowire.ConsumeBytes(data); kind == protowire.BytesType && n == size {
			switch {
			case number == cursorBelow && len(value) == 32:
				children = append(children, hex.EncodeToString(value))
			case number == cursorWorkspace && bytes.HasPrefix(value, []byte("/")) && len(value) <= 4096:
				dir = string(value)
			}
		}
		data = data[size:]
	}
	return children, dir
}

// cursorDepth bounds how deep messages are.
const cursorDepth = 8

// sessions returns the one session of a database.
func (cursor) sessions(ctx context.Context, db *sql.DB, most budget) ([]Session, error) {
	about, err := cursorMeta(ctx, db)
	if err != nil {
		return nil, err
	}
	w := cursorWalk{ctx: ctx, db: db, most: maxCursorTop, left: most}
	if err := w.below(about.Root, cursorDepth, false); err != nil && !errors.Is(err, errFull) {
		return nil, err
	}
	if about.Name == cursorUntitled {
		about.Name = ""
	}
	return []Session{{Dir: w.dir, Title: about.Name[:min(len(about.Name), 500)], Head: w.found}}, nil
}

// messages returns the messages of a database's session, from the end as far
// as there is room.
func (cursor) messages(ctx context.Context, db *sql.DB, _ string, most budget) ([]rows.Stored, error) {
	about, err := cursorMeta(ctx, db)
	if err != nil {
		return nil, err
	}
	w := cursorWalk{ctx: ctx, db: db, most: maxBlobs, left: most}
	err = w.below(about.Root, cursorDepth, true)
	slices.Reverse(w.found)
	if errors.Is(err, errFull) {
		err = nil
	}
	return w.found, err
}

// remove isn't needed: the file is the session's own.
func (cursor) remove(context.Context, *sql.DB, string) error { return errors.ErrUnsupported }
