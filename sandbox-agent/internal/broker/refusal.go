package broker

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/fairlead/fairlead/protocol"
)

// A reason says why a request was refused or failed, to clients and in
// counters.
type reason string

const (
	reasonInvalidPath    reason = "invalid_path"
	reasonInvalidRequest reason = "invalid_request"
	reasonMissingTarget  reason = "missing_target"
	reasonInvalidTarget  reason = "invalid_target"
	reasonHost           reason = "host_not_allowed"
	reasonCapability     reason = "capability_unknown"
	reasonUser           reason = "wrong_user" // shown as capability_unknown
	reasonProvider       reason = "provider_not_configured"
	reasonSecret         reason = "secret_not_configured"
	reasonApproval       reason = "domain_approval_required"
	reasonDenied         reason = "domain_denied"
	reasonTooMany        reason = "too_many_requests"
	reasonRedirect       reason = "redirect_refused"
	reasonEncoding       reason = "encoding_refused"
	reasonUpstream       reason = "upstream_failed"
	reasonIdle           reason = "upstream_idle"
	reasonAborted        reason = "aborted" // the client or its terminal is gone
)

// reasons is the one table of their statuses and hints.
var reasons = map[reason]struct {
	status int
	hint   string
}{
	reasonInvalidPath:    {http.StatusBadRequest, "use /broker/{capability}/{provider}/{path} as the environment gives it"},
	reasonInvalidRequest: {http.StatusBadRequest, "send one request by HTTP/1.1"},
	reasonMissingTarget:  {http.StatusBadRequest, "add ?target=https://… to the URL"},
	reasonInvalidTarget:  {http.StatusBadRequest, "use a complete https URL, escaped"},
	reasonHost:           {http.StatusForbidden, "only hosts on the internet can be reached"},
	reasonCapability:     {http.StatusForbidden, "use the URL from this terminal's own environment"},
	reasonUser:           {http.StatusForbidden, "use the URL from this terminal's own environment"},
	reasonProvider:       {http.StatusNotFound, "set the provider's key for this session, protected by the broker"},
	reasonSecret:         {http.StatusNotFound, "set the secret for this session, protected by the broker"},
	reasonApproval:       {http.StatusForbidden, ""},
	reasonDenied:         {http.StatusForbidden, "whoever may decide has denied this domain"},
	reasonTooMany:        {http.StatusTooManyRequests, "wait until other requests are done"},
	reasonRedirect:       {http.StatusBadGateway, "ask the host that is named here itself"},
	reasonEncoding:       {http.StatusBadGateway, "the answer is compressed though that was not asked for"},
	reasonUpstream:       {http.StatusBadGateway, "try again later"},
	reasonIdle:           {http.StatusGatewayTimeout, "nothing was sent for too long"},
	reasonAborted:        {http.StatusBadGateway, ""},
}

// A refusal is the broker's own answer. Its message consists of fixed text and
// canonical host names, never of a path, a query or a key.
type refusal struct {
	reason  reason
	message string
	domain  string // of reasonApproval
	secret  string // of reasonApproval
}

func refuse(why reason, message string) *refusal { return &refusal{reason: why, message: message} }

func (r *refusal) status() int { return reasons[r.reason].status }

// asRefusal turns an error on the way to host into one for clients.
func asRefusal(host string, err error) *refusal {
	var fault *protocol.Error
	switch {
	case errors.Is(err, errIdle):
		return refuse(reasonIdle, host+" sent nothing for too long")
	case errors.As(err, &fault) && fault.Kind == protocol.KindForbidden:
		return refuse(reasonHost, fault.Message)
	case errors.As(err, &fault) && fault.Kind == protocol.KindUpstream:
		return refuse(reasonUpstream, fault.Message)
	}
	return refuse(reasonUpstream, "the request to "+host+" failed")
}

// write answers with r as JSON.
func (r *refusal) write(w http.ResponseWriter) {
	shown := r.reason
	if shown == reasonUser {
		shown = reasonCapability // guessing reveals nothing
	}
	body, err := json.Marshal(struct {
		Error   reason `json:"error"`
		Domain  string `json:"domain,omitempty"`
		Secret  string `json:"secret,omitempty"`
		Message string `json:"message"`
		Hint    string `json:"hint,omitempty"`
	}{shown, r.domain, r.secret, r.message, reasons[shown].hint})
	if err != nil {
		body = []byte(`{"error":"upstream_failed"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(r.status())
	w.Write(body)
}

// Refusals returns all counted reasons, sorted.
func Refusals() []string {
	all := []string{string(connsRefused)}
	for why := range reasons {
		all = append(all, string(why))
	}
	slices.Sort(all)
	return all
}

// errIdle ends a request that was idle for too long.
var errIdle = errors.New("nothing was sent for too long")

// connsRefused counts refused connections, which get no answer.
const connsRefused reason = "conns_refused"
