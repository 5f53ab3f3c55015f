package instrument

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// GuardNames lets next serve only requests whose Host is an IP address or
// localhost, and none from pages of another origin: a page in an operator's
// browser could use a name that resolves to here, but not an address. Others
// get 403 and are told at.
func GuardNames(at net.Addr, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !addressed(r.Host) || !sameOrigin(r) {
			http.Error(w, fmt.Sprintf("ask for %s, or another address of it", at), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// addressed reports whether host, with or without a port, is an IP address or
// localhost.
func addressed(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost"
}

// sameOrigin reports whether a request comes from one of our pages, or from no
// page.
func sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && u.Host == r.Host
}
