package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"strings"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

const (
	MaxItemBytes = 64 << 10
	MaxItems     = 1000 // of one dashboard
)

func checkBody(body json.RawMessage) error {
	if len(body) > MaxItemBytes {
		return protocol.Errorf(protocol.KindTooLarge, "the body is longer than %d bytes", MaxItemBytes)
	}
	if !json.Valid(body) {
		return protocol.Errorf(protocol.KindInvalid, "the body is not JSON")
	}
	return nil
}

// Items lists the items of a dashboard in the order in which they were added.
func (s *Contents) Items(ctx context.Context, dashboard string) ([]Item, error) {
	return db.Collect(ctx, s.db.Reads(), scanItem, itemColumns+` WHERE dashboard_id = ? ORDER BY position, id LIMIT ?`, dashboard, MaxItems)
}

// Item returns one item of a dashboard; KindNotFound if it has none of the id.
func (s *Contents) Item(ctx context.Context, dashboard, id string) (Item, error) {
	i, err := scanItem(s.db.Reads().Row(ctx, itemColumns+` WHERE dashboard_id = ? AND id = ?`, dashboard, id))
	return i, absent(err, "item")
}

// AddItem adds an item in its first version; with an empty id it gets one.
// KindConflict says that the id is taken, or that the edge is there already,
// KindTooMany that the dashboard is full. An edge whose ends aren't there is
// KindNotFound.
func (s *Contents) AddItem(ctx context.Context, i Item) (Item, error) {
	if i.ID == "" {
		i.ID = "itm_" + strings.ToLower(rand.Text())
	}
	if err := checkID("the item's id", i.ID); err != nil {
		return Item{}, err
	}
	if !i.Kind.Known() {
		return Item{}, protocol.Errorf(protocol.KindInvalid, "unknown kind of item")
	}
	if err := checkBody(i.Body); err != nil {
		return Item{}, err
	}
	i.Version, i.UpdatedAt = 1, s.db.Now().UTC().Truncate(time.Millisecond)
	err := s.db.Transact(ctx, func(tx db.Runner) error {
		if _, err := requireDashboard(ctx, tx, i.Dashboard); err != nil {
			return err
		}
		var count, last int64
		if err := tx.Row(ctx, `SELECT count(*), coalesce(max(position), 0) FROM items WHERE dashboard_id = ?`, i.Dashboard).
			Scan(&count, &last); err != nil {
			return err
		}
		if count >= MaxItems {
			return protocol.Errorf(protocol.KindTooMany, "the dashboard has %d items already", MaxItems)
		}
		if err := checkEdge(ctx, tx, i); err != nil {
			return err
		}
		n, err := tx.Exec(ctx, `
			INSERT INTO items (id, dashboard_id, kind, body, version, updated_by, updated_at, position)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (id) DO NOTHING`,
			i.ID, i.Dashboard, i.Kind, []byte(i.Body), i.Version, i.UpdatedBy, i.UpdatedAt.UnixMilli(), last+1)
		if err == nil && n == 0 {
			err = protocol.Errorf(protocol.KindConflict, "item %s exists already", i.ID)
		}
		return err
	})
	if err != nil {
		return Item{}, err
	}
	return i, nil
}

// UpdateItem gives an item the body of update, whose dashboard, id and editor
// count too. KindConflict says that it isn't of the expected version any more.
// The kind of an item stays.
func (s *Contents) UpdateItem(ctx context.Context, update Item, expectVersion int64) (Item, error) {
	if err := checkBody(update.Body); err != nil {
		return Item{}, err
	}
	var updated Item
	err := s.db.Transact(ctx, func(tx db.Runner) error {
		i, err := scanItem(tx.Row(ctx, itemColumns+` WHERE dashboard_id = ? AND id = ?`, update.Dashboard, update.ID))
		if err != nil {
			return absent(err, "item")
		}
		if i.Version != expectVersion {
			return protocol.Errorf(protocol.KindConflict, "the item is of version %d by now", i.Version)
		}
		i.Body, i.Version, i.UpdatedBy = update.Body, i.Version+1, update.UpdatedBy
		i.UpdatedAt = s.db.Now().UTC().Truncate(time.Millisecond)
		if err := checkEdge(ctx, tx, i); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE items SET body = ?, version = ?, updated_by = ?, updated_at = ? WHERE id = ?`,
			[]byte(i.Body), i.Version, i.UpdatedBy, i.UpdatedAt.UnixMilli(), i.ID)
		updated = i
		return err
	})
	if err != nil {
		return Item{}, err
	}
	return updated, nil
}

// RemoveItem removes an item of a dashboard and the edges that join it with
// others; KindNotFound if the dashboard has none of the id.
func (s *Contents) RemoveItem(ctx context.Context, dashboard, id string) error {
	return s.db.Transact(ctx, func(tx db.Runner) error {
		n, err := tx.Exec(ctx, `DELETE FROM items WHERE dashboard_id = ? AND id = ?`, dashboard, id)
		if err == nil && n == 0 {
			err = absent(sql.ErrNoRows, "item")
		}
		if err != nil {
			return err
		}
		return removeEdgesOf(ctx, tx, dashboard, id)
	})
}
