package egress

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

// An answer is sent to a client instead of the response.
type answer struct {
	kind    protocol.Kind
	message string
	hint    string
}

// answerFor returns the answer for a verdict.
func answerFor(reason Reason, host hostname.Host) answer {
	allow := fmt.Sprintf("Somebody with the capability %q can allow %s in the console, for once or for this session.", protocol.CapApprove, host)
	switch reason {
	case DeniedByRule, DeniedRevoked:
		return answer{protocol.KindForbidden, fmt.Sprintf("%s is denied by a rule of this session", host),
			fmt.Sprintf("Somebody with the capability %q can revoke the rule.", protocol.CapApprove)}
	case DeniedByPerson:
		return answer{protocol.KindForbidden, fmt.Sprintf("%s was denied", host), "A new attempt asks again."}
	case DeniedExpired:
		return answer{protocol.KindForbidden, fmt.Sprintf("nobody decided about %s within %v", host, protocol.EgressTTL), allow + " A new attempt asks again."}
	case DeniedTooMany:
		return answer{protocol.KindTooMany, fmt.Sprintf("too many decisions are pending to ask about %s", host), allow}
	case DeniedUnasked:
		return answer{protocol.KindForbidden, fmt.Sprintf("%s is not on the allowlist, and nobody can be asked now", host), allow}
	case DeniedPort:
		return answer{protocol.KindForbidden, fmt.Sprintf("%s is not reached through the proxy", host), "Connect to it directly."}
	case DeniedPrivate:
		return answer{protocol.KindForbidden, fmt.Sprintf("%s has no public address", host), "The operator of the sandbox can make an exception for a host."}
	case DeniedAuthorization, Challenged:
		return answer{protocol.KindUnauthenticated, "the egress proxy doesn't know this terminal",
			"Use the address in HTTPS_PROXY of your own terminal, with user and password."}
	case DeniedBusy:
		return answer{protocol.KindUnavailable, "too many connections to the egress proxy", "Try again."}
	case FailedDial:
		return answer{protocol.KindUpstream, fmt.Sprintf("%s can't be reached", host), "It is allowed, but not found or doesn't answer."}
	case FailedUpstream:
		return answer{protocol.KindUpstream, fmt.Sprintf("%s gave no answer in HTTP", host), "It was reached, and closed the connection or speaks something else."}
	default:
		return answer{protocol.KindForbidden, fmt.Sprintf("%s is not allowed", host), allow}
	}
}

// refuse answers a request with a verdict; keep: the connection continues.
func (c *client) refuse(reason Reason, host hostname.Host, keep bool) {
	a := answerFor(reason, host)
	status := a.kind.Status()
	if a.kind == protocol.KindUnauthenticated {
		status = http.StatusProxyAuthRequired
	}
	c.reply(status, a, keep)
}

// reject answers a malformed request, and counts it. The message must not quote
// the request.
func (c *client) reject(message string) {
	c.p.note(Event{Reason: RefusedInvalid})
	c.reply(http.StatusBadRequest, answer{kind: protocol.KindInvalid, message: message,
		hint: "This is a forward proxy: GET http://host/path, or CONNECT host:port for everything else."}, false)
	c.linger()
}

func (c *client) reply(status int, a answer, keep bool) {
	body, err := json.Marshal(struct {
		Error protocol.ErrorBody `json:"error"`
		Hint  string             `json:"hint,omitempty"`
	}{protocol.ErrorBody{Message: a.message, Name: a.kind.Name()}, a.hint})
	if err != nil {
		return // impossible: strings
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX-Content-Type-Options: nosniff\r\n",
		status, http.StatusText(status), len(body)+1)
	if status == http.StatusProxyAuthRequired {
		out.WriteString("Proxy-Authenticate: Basic realm=\"fairlead\"\r\n")
	}
	if !keep {
		out.WriteString("Connection: close\r\n")
	}
	out.WriteString("\r\n")
	out.Write(append(body, '\n'))
	_, _ = c.conn.Write(out.Bytes()) // the next read notices a client that is gone
}
