package controlplane

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

const (
	maxNoteBytes   = 16 << 10
	maxTodoEntries = 500
	maxEntryBytes  = 1 << 10
	maxPlace       = 1e6 // of an item, in either direction
)

// A place is where an item is on the board.
type place struct {
	X *float64 `json:"x,omitempty"`
	Y *float64 `json:"y,omitempty"`
}

func (p *place) check() error {
	for _, v := range []*float64{p.X, p.Y} {
		if v != nil && (*v < -maxPlace || *v > maxPlace) {
			return protocol.Errorf(protocol.KindInvalid, "body.x and body.y must be within ±%g", maxPlace)
		}
	}
	return nil
}

// A noteBody is a piece of text on the board.
type noteBody struct {
	Text  string `json:"text"`
	Color string `json:"color,omitempty"` // "#rrggbb" or a name of letters
	place
}

func (n *noteBody) check() error {
	switch {
	case len(n.Text) > maxNoteBytes:
		return protocol.Errorf(protocol.KindInvalid, "body.text is longer than %d bytes", maxNoteBytes)
	case !validColor(n.Color):
		return protocol.Errorf(protocol.KindInvalid, "body.color: want #rrggbb or a name")
	}
	return n.place.check()
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

// A todoBody is a list of things to do.
type todoBody struct {
	Title string      `json:"title"`
	Items []todoEntry `json:"items"`
	place
}

type todoEntry struct {
	Text string `json:"text"`
	Done bool   `json:"done"`
}

func (t *todoBody) check() error {
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
		t.Items = []todoEntry{}
	}
	return t.place.check()
}

// itemForm checks the body of one kind of item and encodes it anew, so that
// what is kept is what was checked.
func itemForm(kind store.ItemKind, raw json.RawMessage) (json.RawMessage, error) {
	switch kind {
	case store.ItemNote:
		return itemBody(raw, (*noteBody).check)
	case store.ItemTodo:
		return itemBody(raw, (*todoBody).check)
	case store.ItemBrowser:
		return itemBody(raw, (*browserBody).check)
	case store.ItemTerminal:
		return itemBody(raw, (*terminalBody).check)
	case store.ItemIntegration:
		return itemBody(raw, (*integrationBody).check)
	case store.ItemEdge:
		return itemBody(raw, (*edgeBody).check)
	case store.ItemLayout: // the console's own
		var compact bytes.Buffer
		if err := protocol.UnmarshalStrict(raw, &map[string]any{}); err != nil {
			return nil, protocol.Errorf(protocol.KindInvalid, "body: %v", err)
		}
		err := json.Compact(&compact, raw)
		return compact.Bytes(), err
	}
	return nil, errItemKind()
}

func errItemKind() error {
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

// itemOut is an item as we answer with it.
type itemOut struct {
	ID        string          `json:"id"`
	Kind      store.ItemKind  `json:"kind"`
	Body      json.RawMessage `json:"body"`
	Version   int64           `json:"version"`
	UpdatedBy protocol.UserID `json:"updated_by"`
	UpdatedAt time.Time       `json:"updated_at"`
}

func newItemOut(i store.Item) itemOut {
	return itemOut{i.ID, i.Kind, i.Body, i.Version, i.UpdatedBy, i.UpdatedAt.UTC()}
}

// writeItem answers with one item. Its ETag is what If-Match takes.
func (s *Server) writeItem(w *web.Writer, status int, i store.Item) error {
	w.Header().Set("ETag", `"`+strconv.FormatInt(i.Version, 10)+`"`)
	return w.JSON(status, struct {
		Item itemOut `json:"item"`
	}{newItemOut(i)})
}

// getItems lists the items of a dashboard, of one kind with ?kind=.
func (s *Server) getItems(w *web.Writer, r *http.Request) error {
	m, err := s.gate.Member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	kind := store.ItemKind(r.URL.Query().Get("kind"))
	if kind != "" && !kind.Known() {
		return errItemKind()
	}
	items, err := s.store.Contents.Items(r.Context(), m.Dashboard.ID)
	if err != nil {
		return err
	}
	answer := struct {
		Items []itemOut `json:"items"`
	}{[]itemOut{}}
	for _, item := range items {
		if kind == "" || item.Kind == kind {
			answer.Items = append(answer.Items, newItemOut(item))
		}
	}
	return w.JSON(http.StatusOK, answer)
}

func (s *Server) getItem(w *web.Writer, r *http.Request) error {
	m, err := s.gate.Member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	item, err := s.store.Contents.Item(r.Context(), m.Dashboard.ID, r.PathValue("item"))
	if err != nil {
		return err
	}
	return s.writeItem(w, http.StatusOK, item)
}

// postItem makes an item.
func (s *Server) postItem(w *web.Writer, r *http.Request) error {
	m, err := s.gate.Editor(w, r)
	if err != nil {
		return err
	}
	var req struct {
		Kind store.ItemKind  `json:"kind"`
		Body json.RawMessage `json:"body"`
	}
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	body, err := itemForm(req.Kind, req.Body)
	if err != nil {
		return err
	}
	item, err := s.store.Contents.AddItem(r.Context(), store.Item{
		Dashboard: m.Dashboard.ID, Kind: req.Kind, Body: body, UpdatedBy: m.User.ID,
	})
	if err != nil {
		return err
	}
	return s.writeItem(w, http.StatusCreated, item)
}

// putItem replaces the body of an item that is still as its writer saw it: with
// another version than that of If-Match it is KindConflict.
func (s *Server) putItem(w *web.Writer, r *http.Request) error {
	m, err := s.gate.Editor(w, r)
	if err != nil {
		return err
	}
	version, err := ifMatch(r)
	if err != nil {
		return err
	}
	var req struct {
		Body json.RawMessage `json:"body"`
	}
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	item, err := s.store.Contents.Item(r.Context(), m.Dashboard.ID, r.PathValue("item"))
	if err != nil {
		return err
	}
	body, err := itemForm(item.Kind, req.Body)
	if err != nil {
		return err
	}
	item.Body, item.UpdatedBy = body, m.User.ID
	if item, err = s.store.Contents.UpdateItem(r.Context(), item, version); err != nil {
		return err
	}
	return s.writeItem(w, http.StatusOK, item)
}

// ifMatch returns the version in the header If-Match.
func ifMatch(r *http.Request) (int64, error) {
	text := r.Header.Get("If-Match")
	inner, ok := strings.CutPrefix(text, `"`)
	if ok {
		inner, ok = strings.CutSuffix(inner, `"`)
	}
	version, err := strconv.ParseInt(inner, 10, 64)
	if !ok || err != nil || version <= 0 || inner[0] == '+' {
		return 0, protocol.Errorf(protocol.KindInvalid, `want If-Match with the version you have seen, like "3"`)
	}
	return version, nil
}

// deleteItem removes an item, whatever its version.
func (s *Server) deleteItem(w *web.Writer, r *http.Request) error {
	m, err := s.gate.Editor(w, r)
	if err != nil {
		return err
	}
	if err := s.store.Contents.RemoveItem(r.Context(), m.Dashboard.ID, r.PathValue("item")); err != nil {
		return err
	}
	return w.None()
}
