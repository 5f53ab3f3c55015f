package tools

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/contents"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
)

// boardTries is how often a change is tried anew that somebody else was faster
// than.
const boardTries = 5

// boardItem is an item as agents see it.
type boardItem struct {
	contents.Item
	Note string `json:"note,omitempty"` // what whoever made it ought to know
}

// create adds an item with a body of its kind.
func (b *board) create(ctx context.Context, kind store.ItemKind, body any, note string) (any, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	if raw, err = contents.Form(kind, raw); err != nil {
		return nil, err
	}
	item, err := b.contents.AddItem(ctx, store.Item{Dashboard: b.dashboard, Kind: kind, Body: raw, UpdatedBy: b.by})
	if err != nil {
		return nil, err
	}
	return boardItem{contents.Show(item), note}, nil
}

func createBrowser(ctx context.Context, b *board, args *contents.Browser) (any, error) {
	return b.create(ctx, store.ItemBrowser, args, "")
}

func createNote(ctx context.Context, b *board, args *contents.Note) (any, error) {
	return b.create(ctx, store.ItemNote, args, "")
}

func createTodo(ctx context.Context, b *board, args *struct {
	Title string   `json:"title"`
	Items []string `json:"items,omitempty"`
	contents.Position
}) (any, error) {
	body := contents.Todo{Title: args.Title, Position: args.Position}
	for _, text := range args.Items {
		body.Items = append(body.Items, contents.TodoEntry{Text: text})
	}
	return b.create(ctx, store.ItemTodo, body, "")
}

// createTerminal places a terminal. It starts nothing: commands are signed for
// people alone.
func createTerminal(ctx context.Context, b *board, args *struct {
	Name    string `json:"name"`
	Command string `json:"command,omitempty"`
	contents.Position
}) (any, error) {
	return b.create(ctx, store.ItemTerminal, contents.Terminal{Name: args.Name, Command: args.Command, Position: args.Position},
		"nothing has been started: the terminal is on the board, and runs once a person opens it")
}

// createIntegration places a provider. It attaches nothing: whose account a
// terminal may use, and for what, people decide.
func createIntegration(ctx context.Context, b *board, args *contents.Integration) (any, error) {
	return b.create(ctx, store.ItemIntegration, args,
		"nothing has been attached: a person must attach an account of this provider to the terminal")
}

// item returns an item that agents may work on.
func (b *board) item(ctx context.Context, id string) (store.Item, error) {
	item, err := b.contents.Item(ctx, b.dashboard, id)
	if err == nil && item.Kind == store.ItemLayout {
		err = protocol.Errorf(protocol.KindForbidden, "the layout is the console's own")
	}
	return item, err
}

// change replaces the body of an item by what f makes of it. version is what it
// must be of, or 0: then f is asked again when somebody else was faster.
func (b *board) change(ctx context.Context, id string, version int64, f func(store.Item) (json.RawMessage, error)) (any, error) {
	for try := 1; ; try++ {
		item, err := b.item(ctx, id)
		if err != nil {
			return nil, err
		}
		body, err := f(item)
		if err != nil {
			return nil, err
		}
		if body, err = contents.Form(item.Kind, body); err != nil {
			return nil, err
		}
		expect := item.Version
		if version != 0 {
			expect = version
		}
		item.Body, item.UpdatedBy = body, b.by
		changed, err := b.contents.UpdateItem(ctx, item, expect)
		if err == nil {
			return boardItem{Item: contents.Show(changed)}, nil
		}
		if protocol.KindOf(err) != protocol.KindConflict || version != 0 || try == boardTries {
			return nil, err
		}
	}
}

// changeBody is change for items of one kind.
func changeBody[T any](ctx context.Context, b *board, id string, kind store.ItemKind, f func(*T) error) (any, error) {
	return b.change(ctx, id, 0, func(item store.Item) (json.RawMessage, error) {
		if item.Kind != kind {
			return nil, protocol.Errorf(protocol.KindInvalid, "the item is a %s, not a %s", item.Kind, kind)
		}
		var body T
		if err := json.Unmarshal(item.Body, &body); err != nil {
			return nil, err
		}
		if err := f(&body); err != nil {
			return nil, err
		}
		return json.Marshal(body)
	})
}

// updateBoardItem sets members of an item's body; null removes one.
func updateBoardItem(ctx context.Context, b *board, args *struct {
	Item    string                     `json:"item_id"`
	Changes map[string]json.RawMessage `json:"changes"`
	Version int64                      `json:"version,omitempty"`
}) (any, error) {
	if len(args.Changes) == 0 {
		return nil, protocol.Errorf(protocol.KindInvalid, "changes is empty")
	}
	if args.Version < 0 {
		return nil, protocol.Errorf(protocol.KindInvalid, "version must be one that you have seen")
	}
	return b.change(ctx, args.Item, args.Version, func(item store.Item) (json.RawMessage, error) {
		var body map[string]json.RawMessage
		if err := json.Unmarshal(item.Body, &body); err != nil {
			return nil, err
		}
		for name, value := range args.Changes {
			if string(value) == "null" {
				delete(body, name)
			} else {
				body[name] = value
			}
		}
		return json.Marshal(body)
	})
}

// removal is the answer of what removes something.
type removal struct {
	Deleted bool `json:"deleted"`
}

func deleteBoardItem(ctx context.Context, b *board, args *struct {
	Item string `json:"item_id"`
}) (any, error) {
	if _, err := b.item(ctx, args.Item); err != nil {
		return nil, err
	}
	return removal{true}, b.contents.RemoveItem(ctx, b.dashboard, args.Item)
}

// joins finds the edge from one item to another; KindNotFound if there is none.
func (b *board) joins(ctx context.Context, from, to string) (store.Item, error) {
	items, err := b.contents.Items(ctx, b.dashboard)
	if err != nil {
		return store.Item{}, err
	}
	i := slices.IndexFunc(items, func(item store.Item) bool {
		edge, err := store.EdgeOf(item)
		return err == nil && edge == store.Edge{From: from, To: to}
	})
	if i < 0 {
		return store.Item{}, protocol.Errorf(protocol.KindNotFound, "the items are not connected in that direction")
	}
	return items[i], nil
}

// connectNodes joins two items. Where they are joined already that is no error.
func connectNodes(ctx context.Context, b *board, args *struct {
	From  string `json:"source_id"`
	To    string `json:"target_id"`
	Label string `json:"label,omitempty"`
}) (any, error) {
	made, err := b.create(ctx, store.ItemEdge, contents.Edge{From: args.From, To: args.To, Label: args.Label}, "")
	if protocol.KindOf(err) != protocol.KindConflict || err == nil {
		return made, err
	}
	there, err := b.joins(ctx, args.From, args.To)
	if err != nil {
		return nil, err
	}
	return boardItem{contents.Show(there), "the items were connected already"}, nil
}

func disconnectNodes(ctx context.Context, b *board, args *struct {
	From string `json:"source_id"`
	To   string `json:"target_id"`
}) (any, error) {
	edge, err := b.joins(ctx, args.From, args.To)
	if err != nil {
		return nil, err
	}
	return removal{true}, b.contents.RemoveItem(ctx, b.dashboard, edge.ID)
}

// navigateBrowser changes which page an item shows.
func navigateBrowser(ctx context.Context, b *board, args *struct {
	Item string `json:"item_id"`
	URL  string `json:"url"`
}) (any, error) {
	return changeBody(ctx, b, args.Item, store.ItemBrowser, func(body *contents.Browser) error {
		if body.URL != args.URL {
			body.URL, body.Title = args.URL, "" // the title was the other page's
		}
		return nil
	})
}

func addTodoItem(ctx context.Context, b *board, args *struct {
	Item string `json:"item_id"`
	Text string `json:"text"`
	Done bool   `json:"done,omitempty"`
}) (any, error) {
	return changeBody(ctx, b, args.Item, store.ItemTodo, func(body *contents.Todo) error {
		body.Items = append(body.Items, contents.TodoEntry{Text: args.Text, Done: args.Done})
		return nil
	})
}

// toggleTodoItem says that an entry is done, or isn't any more. Entries have no
// ids, and somebody else may add and remove some: so one is named by its text,
// by its place, or by both.
func toggleTodoItem(ctx context.Context, b *board, args *struct {
	Item  string  `json:"item_id"`
	Index *int    `json:"index,omitempty"` // from 0
	Text  *string `json:"text,omitempty"`
	Done  *bool   `json:"done,omitempty"` // absent: the other way round
}) (any, error) {
	if args.Index == nil && args.Text == nil {
		return nil, protocol.Errorf(protocol.KindInvalid, "name the entry by its text, by its index, or by both")
	}
	return changeBody(ctx, b, args.Item, store.ItemTodo, func(body *contents.Todo) error {
		entry := -1
		for i, e := range body.Items {
			if args.Index != nil && *args.Index != i || args.Text != nil && *args.Text != e.Text {
				continue
			}
			if entry >= 0 {
				return protocol.Errorf(protocol.KindInvalid, "several entries have that text: name the index as well")
			}
			entry = i
		}
		if entry < 0 {
			return protocol.Errorf(protocol.KindNotFound, "the list has no such entry")
		}
		done := &body.Items[entry].Done
		if *done = !*done; args.Done != nil {
			*done = *args.Done
		}
		return nil
	})
}

// listBoardItems lists the items of one kind or of all, without the layout.
func listBoardItems(ctx context.Context, b *board, args *struct {
	Kind  store.ItemKind `json:"kind,omitempty"`
	After string         `json:"after,omitempty"`
}) (any, error) {
	if args.Kind != "" && (!args.Kind.Known() || args.Kind == store.ItemLayout) {
		return nil, contents.ErrKind()
	}
	items, err := b.contents.Items(ctx, b.dashboard)
	if err != nil {
		return nil, err
	}
	items = slices.DeleteFunc(items, func(i store.Item) bool {
		return i.Kind == store.ItemLayout || args.Kind != "" && i.Kind != args.Kind
	})
	shown, err := part(items, args.After, func(i store.Item) string { return i.ID }, contents.Show)
	if err != nil {
		return nil, err
	}
	return struct {
		Items []contents.Item `json:"items"`
		Next  string          `json:"next,omitempty"`
	}{shown.list, shown.next}, nil
}
