package contents

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/provider"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// MaxNoteBytes bounds the text of a note.
const MaxNoteBytes = 16 << 10

const (
	maxTodoEntries = 500
	maxEntryBytes  = 1 << 10
	maxCoordinate  = 1e6 // of an item, in either direction
)

// A Position is where an item is on the board.
type Position struct {
	X *float64 `json:"x,omitempty"`
	Y *float64 `json:"y,omitempty"`
}

func (p *Position) check() error {
	for _, v := range []*float64{p.X, p.Y} {
		if v != nil && (*v < -maxCoordinate || *v > maxCoordinate) {
			return protocol.Errorf(protocol.KindInvalid, "body.x and body.y must be within ±%g", maxCoordinate)
		}
	}
	return nil
}

// A Note is a piece of text on the board.
type Note struct {
	Text  string `json:"text"`
	Color string `json:"color,omitempty"` // "#rrggbb" or a name of letters
	Position
}

func (n *Note) check() error {
	switch {
	case len(n.Text) > MaxNoteBytes:
		return protocol.Errorf(protocol.KindInvalid, "body.text is longer than %d bytes", MaxNoteBytes)
	case !validColor(n.Color):
		return protocol.Errorf(protocol.KindInvalid, "body.color: want #rrggbb or a name")
	}
	return n.Position.check()
}

// validColor: what a console may put into a style without another look.
func validColor(color string) bool {
	hex, isHex := strings.CutPrefix(color, "#")
	if isHex {
		_, err := strconv.ParseUint(hex, 16, 32)
		return err == nil && len(hex) == 6
	}
	for i := range len(color) {
		if c := color[i]; c < 'a' || c > 'z' {
			return false
		}
	}
	return len(color) <= 32
}

// A Todo is a list of things to do.
type Todo struct {
	Title string      `json:"title"`
	Items []TodoEntry `json:"items"`
	Position
}

// A TodoEntry is one thing to do.
type TodoEntry struct {
	Text string `json:"text"`
	Done bool   `json:"done"`
}

func (t *Todo) check() error {
	if len(t.Title) > maxEntryBytes {
		return protocol.Errorf(protocol.KindInvalid, "body.title is longer than %d bytes", maxEntryBytes)
	}
	if len(t.Items) > maxTodoEntries {
		return protocol.Errorf(protocol.KindInvalid, "body.items: more than %d", maxTodoEntries)
	}
	for i, entry := range t.Items {
		if len(entry.Text) > maxEntryBytes {
			return protocol.Errorf(protocol.KindInvalid, "body.items[%d].text is longer than %d bytes", i, maxEntryBytes)
		}
	}
	if t.Items == nil {
		t.Items = []TodoEntry{}
	}
	return t.Position.check()
}

// Form checks the body of one kind of item and encodes it anew, so that
// what is kept is what was checked.
func Form(kind store.ItemKind, raw json.RawMessage) (json.RawMessage, error) {
	switch kind {
	case store.ItemNote:
		return itemBody(raw, (*Note).check)
	case store.ItemTodo:
		return itemBody(raw, (*Todo).check)
	case store.ItemBrowser:
		return itemBody(raw, (*Browser).check)
	case store.ItemTerminal:
		return itemBody(raw, (*Terminal).check)
	case store.ItemIntegration:
		return itemBody(raw, (*Integration).check)
	case store.ItemEdge:
		return itemBody(raw, (*Edge).check)
	case store.ItemLayout: // the console's own
		var compact bytes.Buffer
		if err := protocol.UnmarshalStrict(raw, &map[string]any{}); err != nil {
			return nil, protocol.Errorf(protocol.KindInvalid, "body: %v", err)
		}
		err := json.Compact(&compact, raw)
		return compact.Bytes(), err
	}
	return nil, ErrKind()
}

// ErrKind says which kinds of items there are.
func ErrKind() error {
	kinds := make([]string, len(store.ItemKinds))
	for i, kind := range store.ItemKinds {
		kinds[i] = string(kind)
	}
	return protocol.Errorf(protocol.KindInvalid, "kind: want one of %s", strings.Join(kinds, ", "))
}

func itemBody[T any](raw json.RawMessage, check func(*T) error) (json.RawMessage, error) {
	var body T
	if err := protocol.UnmarshalStrict(raw, &body); err != nil {
		return nil, protocol.Errorf(protocol.KindInvalid, "body: %v", err)
	}
	if err := check(&body); err != nil {
		return nil, err
	}
	return json.Marshal(body)
}

const (
	maxURLBytes     = 2 << 10
	maxTitleBytes   = 256
	maxCommandBytes = 1 << 10
)

// A Browser is a page on the board.
type Browser struct {
	URL   string `json:"url"`
	Title string `json:"title,omitempty"`
	Position
}

func (b *Browser) check() error {
	if err := checkPageURL("body.url", b.URL); err != nil {
		return err
	}
	if err := checkOneLine("body.title", b.Title, maxTitleBytes); err != nil {
		return err
	}
	return b.Position.check()
}

// checkPageURL takes what a console may open for somebody who clicks on it.
func checkPageURL(name, text string) error {
	u, err := url.Parse(text)
	printable := !strings.ContainsFunc(text, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) })
	switch {
	case len(text) > maxURLBytes:
		return protocol.Errorf(protocol.KindInvalid, "%s is longer than %d bytes", name, maxURLBytes)
	case err != nil || !printable || !utf8.ValidString(text) || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return protocol.Errorf(protocol.KindInvalid, "%s: want an http or https URL", name)
	case u.User != nil:
		return protocol.Errorf(protocol.KindInvalid, "%s must not hold a password", name)
	}
	return nil
}

// checkOneLine takes one line of text that looks as it is: nothing in it is
// hidden, or drawn in another order.
func checkOneLine(name, text string, limit int) error {
	if len(text) > limit {
		return protocol.Errorf(protocol.KindInvalid, "%s is longer than %d bytes", name, limit)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return protocol.Errorf(protocol.KindInvalid, "%s must be one line of printable text", name)
	}
	return nil
}

// A Terminal is a terminal's place on the board. Without a PTY there is none
// yet: whoever may open terminals opens it, and it is theirs to read Command
// before that.
type Terminal struct {
	Name    string             `json:"name"`
	Command string             `json:"command,omitempty"` // what it is meant to run
	Session protocol.SessionID `json:"session_id,omitempty"`
	PTY     protocol.PTYID     `json:"pty_id,omitempty"`
	Position
}

func (t *Terminal) check() error {
	switch {
	case t.Session != "" && !protocol.ValidID(t.Session):
		return protocol.Errorf(protocol.KindInvalid, "body.session_id is not an id")
	case t.PTY != "" && !protocol.ValidID(t.PTY):
		return protocol.Errorf(protocol.KindInvalid, "body.pty_id is not an id")
	case t.PTY != "" && t.Session == "":
		return protocol.Errorf(protocol.KindInvalid, "body.pty_id means nothing without body.session_id")
	}
	if err := checkOneLine("body.name", t.Name, maxTitleBytes); err != nil {
		return err
	}
	if err := checkOneLine("body.command", t.Command, maxCommandBytes); err != nil {
		return err
	}
	return t.Position.check()
}

// An Integration is a provider's place on the board. It stands for no
// account: which one a terminal may use is a person's choice, made elsewhere.
type Integration struct {
	Provider string `json:"provider"`
	Position
}

func (i *Integration) check() error {
	if all := provider.Providers(); !slices.Contains(all, i.Provider) {
		return protocol.Errorf(protocol.KindInvalid, "body.provider: want one of %s", strings.Join(all, ", "))
	}
	return i.Position.check()
}

// An Edge joins two items.
type Edge struct {
	From  string `json:"from"` // an item's id
	To    string `json:"to"`
	Label string `json:"label,omitempty"`
}

func (e *Edge) check() error {
	if !protocol.ValidID(e.From) || !protocol.ValidID(e.To) {
		return protocol.Errorf(protocol.KindInvalid, "body.from and body.to must be ids of items")
	}
	return checkOneLine("body.label", e.Label, maxTitleBytes)
}
