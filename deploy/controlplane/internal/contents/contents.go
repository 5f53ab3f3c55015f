// Package contents keeps what is on a dashboard: items, each of a kind with a form
// of its own.
package contents

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/access"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

// Contents answers for the items of dashboards.
type Contents struct {
	// Static after construction.
	Store *store.Contents
	Gate  *access.Gate
}

// Routes returns the routes of items. They take a user token.
func (c *Contents) Routes() []web.Route {
	return []web.Route{
		web.Get("/dashboards/{id}/items", c.getItems),
		web.Post("/dashboards/{id}/items", c.postItem),
		web.Get("/dashboards/{id}/items/{item}", c.getItem),
		web.Put("/dashboards/{id}/items/{item}", c.putItem),
		web.Delete("/dashboards/{id}/items/{item}", c.deleteItem),
	}
}

// An Item is an item as we answer with it.
type Item struct {
	ID        string          `json:"id"`
	Kind      store.ItemKind  `json:"kind"`
	Body      json.RawMessage `json:"body"`
	Version   int64           `json:"version"`
	UpdatedBy protocol.UserID `json:"updated_by"`
	UpdatedAt time.Time       `json:"updated_at"`
}

// Show returns an item as we answer with it.
func Show(i store.Item) Item {
	return Item{i.ID, i.Kind, i.Body, i.Version, i.UpdatedBy, i.UpdatedAt.UTC()}
}

// writeItem answers with one item. Its ETag is what If-Match takes.
func writeItem(w *web.Writer, status int, i store.Item) error {
	w.Header().Set("ETag", `"`+strconv.FormatInt(i.Version, 10)+`"`)
	return w.JSON(status, struct {
		Item Item `json:"item"`
	}{Show(i)})
}

// getItems lists the items of a dashboard, of one kind with ?kind=.
func (c *Contents) getItems(w *web.Writer, r *http.Request) error {
	m, err := c.Gate.Member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	kind := store.ItemKind(r.URL.Query().Get("kind"))
	if kind != "" && !kind.Known() {
		return ErrKind()
	}
	items, err := c.Store.Items(r.Context(), m.Dashboard.ID)
	if err != nil {
		return err
	}
	answer := struct {
		Items []Item `json:"items"`
	}{[]Item{}}
	for _, item := range items {
		if kind == "" || item.Kind == kind {
			answer.Items = append(answer.Items, Show(item))
		}
	}
	return w.JSON(http.StatusOK, answer)
}

func (c *Contents) getItem(w *web.Writer, r *http.Request) error {
	m, err := c.Gate.Member(w, r, protocol.CapView)
	if err != nil {
		return err
	}
	item, err := c.Store.Item(r.Context(), m.Dashboard.ID, r.PathValue("item"))
	if err != nil {
		return err
	}
	return writeItem(w, http.StatusOK, item)
}

// postItem makes an item.
func (c *Contents) postItem(w *web.Writer, r *http.Request) error {
	m, err := c.Gate.Editor(w, r)
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
	body, err := Form(req.Kind, req.Body)
	if err != nil {
		return err
	}
	item, err := c.Store.AddItem(r.Context(), store.Item{
		Dashboard: m.Dashboard.ID, Kind: req.Kind, Body: body, UpdatedBy: m.User.ID,
	})
	if err != nil {
		return err
	}
	return writeItem(w, http.StatusCreated, item)
}

// putItem replaces the body of an item that is still as its writer saw it: with
// another version than that of If-Match it is KindConflict.
func (c *Contents) putItem(w *web.Writer, r *http.Request) error {
	m, err := c.Gate.Editor(w, r)
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
	item, err := c.Store.Item(r.Context(), m.Dashboard.ID, r.PathValue("item"))
	if err != nil {
		return err
	}
	body, err := Form(item.Kind, req.Body)
	if err != nil {
		return err
	}
	item.Body, item.UpdatedBy = body, m.User.ID
	if item, err = c.Store.UpdateItem(r.Context(), item, version); err != nil {
		return err
	}
	return writeItem(w, http.StatusOK, item)
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
func (c *Contents) deleteItem(w *web.Writer, r *http.Request) error {
	m, err := c.Gate.Editor(w, r)
	if err != nil {
		return err
	}
	if err := c.Store.RemoveItem(r.Context(), m.Dashboard.ID, r.PathValue("item")); err != nil {
		return err
	}
	return w.None()
}
