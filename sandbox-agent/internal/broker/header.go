package broker

import (
	"net/http"
	"strings"
)

// requestOnly are headers that never go upstream: the client's credentials,
// which are placeholders at best, hop-by-hop headers, and what would identify
// the sandbox.
var requestOnly = headerSet(
	"Authorization", "Proxy-Authorization", "X-Api-Key", "Xi-Api-Key", "X-Goog-Api-Key", "Api-Key", "Apikey",
	"X-Auth-Token", "X-Auth-Key", "X-Access-Token", "Cookie", "Cookie2",
	"Origin", "Referer", "Forwarded", "Via", "X-Real-Ip",
	"Accept-Encoding", "Expect", "Host", "Content-Length", "Sec-Websocket-Extensions",
)

// answerOnly are headers that never go back to the client.
var answerOnly = headerSet(
	"Authorization", "Proxy-Authorization", "X-Api-Key", "Xi-Api-Key", "X-Goog-Api-Key", "Api-Key", "Apikey",
	"X-Auth-Token", "X-Auth-Key", "X-Access-Token", "Cookie", "Set-Cookie", "Set-Cookie2",
	"Alt-Svc", "Strict-Transport-Security", "Clear-Site-Data", "Sec-Websocket-Extensions",
)

// hop are the hop-by-hop headers (RFC 9110, 7.6.1).
var hop = headerSet(
	"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
)

func headerSet(names ...string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}

// canonicalHeader returns the spelling for comparing names: some servers treat
// an underscore as a hyphen.
func canonicalHeader(name string) string {
	return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// passing returns the headers to forward.
func passing(in http.Header, stop map[string]bool) http.Header {
	named := make(map[string]bool)
	for _, value := range in["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			named[canonicalHeader(strings.TrimSpace(name))] = true
		}
	}
	out := make(http.Header, len(in))
	for name, values := range in {
		canonical := canonicalHeader(name)
		if hop[canonical] || stop[canonical] || named[canonical] {
			continue
		}
		out[name] = values
	}
	return out
}

// requestHeader returns the headers of a client's request that go upstream.
func requestHeader(in http.Header) http.Header {
	out := passing(in, requestOnly)
	for name, values := range out {
		if strings.HasPrefix(canonicalHeader(name), "X-Forwarded-") || strings.Contains(strings.Join(values, ""), placeholder) {
			delete(out, name)
		}
	}
	if protocols := subprotocols(out["Sec-Websocket-Protocol"]); protocols != "" {
		out.Set("Sec-Websocket-Protocol", protocols)
	} else {
		out.Del("Sec-Websocket-Protocol")
	}
	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = nil // otherwise net/http adds its own
	}
	// Only text can be masked.
	out.Set("Accept-Encoding", "identity")
	return out
}

// subprotocols drops the ones by which browsers send a key.
func subprotocols(values []string) string {
	var kept []string
	for offer := range strings.SplitSeq(strings.Join(values, ","), ",") {
		offer = strings.TrimSpace(offer)
		if offer == "token" || offer == "bearer" {
			break // the key follows
		}
		if offer != "" && !strings.HasPrefix(offer, "openai-insecure-api-key.") {
			kept = append(kept, offer)
		}
	}
	return strings.Join(kept, ", ")
}

// isWebSocket reports whether a request asks for a WebSocket.
func isWebSocket(r *http.Request) bool {
	if r.Method != http.MethodGet || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return false
	}
	for _, value := range r.Header["Connection"] {
		for name := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(name), "upgrade") {
				return true
			}
		}
	}
	return false
}

// maskHeader masks the values of h in place.
func maskHeader(h http.Header, masker func() Masker) {
	if masker == nil {
		return
	}
	for _, values := range h {
		for i, value := range values {
			values[i] = maskText(masker(), value)
		}
	}
}

func maskText(m Masker, text string) string {
	return string(m.Flush(m.Write(nil, []byte(text))))
}
