package gateway

import (
	"net/http"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// setCookie sets a cookie for its socket's path only, invisible to scripts.
func setCookie(w http.ResponseWriter, name, origin, path, value string, life time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: path, MaxAge: max(1, int(life/time.Second)),
		HttpOnly: true, Secure: strings.HasPrefix(origin, "https:"), SameSite: http.SameSiteStrictMode,
	})
}

// SocketURL returns the absolute URL of path at the public origin.
func SocketURL(origin, path string) string { return "ws" + strings.TrimPrefix(origin, "http") + path }

// An Offer is what a client's subprotocols offer.
type Offer struct {
	ticket     string
	hasTicket  bool
	counts     bool     // it speaks terminal.v2
	selectable []string // the one to echo: terminal.v2, else the ticket's own, verbatim
}

// Ticket returns the ticket of the offer. Even an empty one decides.
func (o Offer) Ticket() (ticket string, presented bool) { return o.ticket, o.hasTicket }

// Offered reads the subprotocols that the client offers.
func Offered(r *http.Request) (o Offer) {
	for _, header := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(header, ",") {
			name = strings.TrimSpace(name)
			ticket, isTicket := strings.CutPrefix(name, protocol.SubprotocolTicket)
			switch {
			case name == protocol.SubprotocolTerminal:
				o.counts, o.selectable = true, []string{name}
			case isTicket && !o.hasTicket:
				o.ticket, o.hasTicket = ticket, true
				if !o.counts {
					o.selectable = []string{name}
				}
			}
		}
	}
	return o
}
