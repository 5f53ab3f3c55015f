package controlapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/rejects"
)

// maxTabsReport bounds a report of shared tabs, in bytes, and tabsTimeout what is
// asked of the control plane about them.
const (
	maxTabsReport = 256 << 10
	tabsTimeout   = 10 * time.Second
)

// shareTabs takes from a person's page which tabs of her own browser she shares
// with a session. The control plane keeps that.
func (a *API) shareTabs(w http.ResponseWriter, r *http.Request) {
	token, session, err := a.holder(r, protocol.CapMCP)
	var body []byte
	if err == nil {
		body, err = access.ReadBody(w, r, maxTabsReport)
	}
	var report dispatch.TabsReport
	if err == nil && protocol.UnmarshalStrict(body, &report) != nil {
		err = protocol.Errorf(protocol.KindInvalid, "want {browserId, extensionId, tabs}")
	}
	a.answerTabs(w, r, err, func(ctx context.Context) (json.RawMessage, error) {
		return a.Signer.ShareTabs(ctx, dispatch.TabsRequest{Grant: token, Session: session, TabsReport: report})
	})
}

// sharedTabs answers with what is shared with a session, and with what ran in
// one's own browser.
func (a *API) sharedTabs(w http.ResponseWriter, r *http.Request) {
	token, session, err := a.holder(r, protocol.CapView)
	a.answerTabs(w, r, err, func(ctx context.Context) (json.RawMessage, error) {
		return a.Signer.SharedTabs(ctx, token, session)
	})
}

// holder returns the grant of r and the session in its path, if it allows that.
func (a *API) holder(r *http.Request, needs protocol.Capability) (string, protocol.SessionID, error) {
	session := protocol.SessionID(r.PathValue("sid"))
	grant, token, err := access.Grant(r, a.Keys)
	switch {
	case err != nil:
		return "", "", err
	case !protocol.ValidID(session):
		return "", "", protocol.Errorf(protocol.KindNotFound, "no such session")
	case !grant.Allows(session, "", needs):
		return "", "", protocol.Errorf(protocol.KindForbidden, "the grant does not allow %s in this session", needs)
	}
	return token, session, nil
}

// answerTabs asks the control plane, unless err, and answers with what it says.
func (a *API) answerTabs(w http.ResponseWriter, r *http.Request, err error, ask func(context.Context) (json.RawMessage, error)) {
	var answer json.RawMessage
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), tabsTimeout)
		defer cancel()
		answer, err = ask(ctx)
	}
	if err != nil {
		a.refuse(w, rejects.Request, err)
		return
	}
	access.WriteVerbatim(w, http.StatusOK, answer)
}
