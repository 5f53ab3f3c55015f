package fleet

import (
	"context"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/relays"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/web"
	"github.com/fairlead/fairlead/protocol"
)

// ownName stands for the relay of the credential: a relay may not know its id.
const ownName = "self"

type relayRequest struct {
	URL          string `json:"url"`
	Tunnel       string `json:"tunnel"`
	PublicOrigin string `json:"public_origin"`
	Draining     bool   `json:"draining,omitempty"` // it takes nothing new any more
}

type relayAnswer struct {
	ID        protocol.RelayID `json:"id"`
	ExpiresAt time.Time        `json:"expires_at"`
	Relays    []otherRelay     `json:"relays"`
}

// An otherRelay is where a relay's agents and viewers may go instead.
type otherRelay struct {
	ID           protocol.RelayID `json:"id"`
	URL          string           `json:"url"`
	Tunnel       string           `json:"tunnel"`
	PublicOrigin string           `json:"public_origin"`
}

// putRelay registers a relay's address for the next 30 s, or takes back the
// registration of one that drains, and answers with the other relays.
func (f *Fleet) putRelay(w *web.Writer, r *http.Request) error {
	id, err := f.Gate.Relay(w, r)
	if err != nil {
		return err
	}
	if name := r.PathValue("id"); name != string(id) && name != ownName {
		return protocol.Errorf(protocol.KindForbidden, "the credential is another relay's")
	}
	var req relayRequest
	if err := web.ReadBody(r, &req); err != nil {
		return err
	}
	if req.URL, err = web.Origin("url", req.URL); err != nil {
		return err
	}
	if req.PublicOrigin, err = web.Origin("public_origin", req.PublicOrigin); err != nil {
		return err
	}
	if err := protocol.CheckAddr(req.Tunnel); err != nil {
		return protocol.Errorf(protocol.KindInvalid, "tunnel: %v", err)
	}
	now := f.Clock.Now().UTC()
	seen := now
	if req.Draining {
		seen = now.Add(-2 * relays.Life)
	}
	if err := f.Store.RegisterRelay(r.Context(), store.Relay{
		ID: id, URL: req.URL, Tunnel: req.Tunnel, PublicOrigin: req.PublicOrigin,
	}, seen); err != nil {
		return err
	}
	f.Spread.Renew(id)
	others, err := f.otherRelays(r.Context(), id, now)
	if err != nil {
		return err
	}
	return w.JSON(http.StatusOK, relayAnswer{id, seen.Add(relays.Life), others})
}

// otherRelays lists the relays that are registered at now, but id.
func (f *Fleet) otherRelays(ctx context.Context, id protocol.RelayID, now time.Time) ([]otherRelay, error) {
	all, err := f.Relays.Registered(ctx)
	if err != nil {
		return nil, err
	}
	others := []otherRelay{}
	for _, r := range all {
		if r.ID != id {
			others = append(others, otherRelay(r))
		}
	}
	return others, nil
}
