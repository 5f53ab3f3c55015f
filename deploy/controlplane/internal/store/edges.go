package store

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// An Edge is the body of an item of kind ItemEdge as far as the store knows it:
// the items that it joins.
type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// EdgeOf returns what the edge i joins.
func EdgeOf(i Item) (Edge, error) {
	var e Edge
	if i.Kind != ItemEdge || json.Unmarshal(i.Body, &e) != nil {
		return Edge{}, protocol.Errorf(protocol.KindInvalid, "item %s is not an edge", i.ID)
	}
	return e, nil
}

// checkEdge refuses an edge that doesn't join two items of its dashboard, or
// that is there already: then it is KindConflict. Other kinds pass.
func checkEdge(ctx context.Context, tx db.Runner, i Item) error {
	if i.Kind != ItemEdge {
		return nil
	}
	edge, err := EdgeOf(i)
	if err != nil {
		return err
	}
	if edge.From == edge.To {
		return protocol.Errorf(protocol.KindInvalid, "an edge joins two items")
	}
	for _, id := range []string{edge.From, edge.To} {
		end, err := scanItem(tx.Row(ctx, itemColumns+` WHERE dashboard_id = ? AND id = ?`, i.Dashboard, id))
		if err != nil {
			return absent(err, "item")
		}
		if end.Kind == ItemEdge || end.Kind == ItemLayout {
			return protocol.Errorf(protocol.KindInvalid, "an edge can't join an item of kind %s", end.Kind)
		}
	}
	there, err := edges(ctx, tx, i.Dashboard)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(there, func(other joined) bool { return other.Edge == edge && other.id != i.ID }) {
		return protocol.Errorf(protocol.KindConflict, "the items are joined already")
	}
	return nil
}

// joined is an edge with its id.
type joined struct {
	Edge
	id string
}

// edges lists the edges of a dashboard.
func edges(ctx context.Context, tx db.Runner, dashboard string) ([]joined, error) {
	return db.Collect(ctx, tx, func(row db.Scanner) (joined, error) {
		i, err := scanItem(row)
		if err != nil {
			return joined{}, err
		}
		edge, err := EdgeOf(i)
		return joined{edge, i.ID}, err
	}, itemColumns+` WHERE dashboard_id = ? AND kind = ?`, dashboard, ItemEdge)
}

// removeEdgesOf removes the edges that join an item with others.
func removeEdgesOf(ctx context.Context, tx db.Runner, dashboard, id string) error {
	all, err := edges(ctx, tx, dashboard)
	if err != nil {
		return err
	}
	for _, edge := range all {
		if edge.From != id && edge.To != id {
			continue
		}
		if _, err := tx.Exec(ctx, `DELETE FROM items WHERE dashboard_id = ? AND id = ?`, dashboard, edge.id); err != nil {
			return err
		}
	}
	return nil
}
