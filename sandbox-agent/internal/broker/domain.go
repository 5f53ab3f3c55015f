package broker

import (
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/hostname"
)

// maxDomains bounds the rules of one session.
const maxDomains = 1000

// The default header for a custom secret.
const (
	defaultHeader = "Authorization"
	defaultFormat = "Bearer %s"
)

// A domainKey is a session's secret and a host to which it may go.
type domainKey struct {
	secret string
	domain string // host, or host:port at another port than 443
}

// A rule says whether a secret may go to a domain, and how.
type rule struct {
	denied       bool
	once         time.Time // end of the permission for one request; zero: it lasts
	header       string
	headerFormat string // with one %s
}

// canonicalDomain returns the one spelling of a domain.
func canonicalDomain(text string) (string, error) {
	h, err := hostname.Parse(text, 443)
	if err != nil {
		return "", protocol.Errorf(protocol.KindInvalid, "a domain is a host name, or host:port")
	}
	return destination{scheme: "https", host: h}.authority(), nil
}

// ApproveDomain lets a session's custom secret go to a domain, in the header
// that d names. Its errors are of KindInvalid and KindTooMany.
func (r *registry) ApproveDomain(session protocol.SessionID, d protocol.ApprovedDomain) error {
	made := rule{header: defaultHeader, headerFormat: defaultFormat}
	if d.HeaderName != "" {
		made.header = d.HeaderName
	}
	if d.HeaderFormat != "" {
		made.headerFormat = d.HeaderFormat
	}
	if !validHeader(made.header, made.headerFormat) {
		return protocol.Errorf(protocol.KindInvalid, "%s: not a header that can carry a secret", d.Secret)
	}
	return r.setRule(session, d.Secret, d.Domain, &made, false)
}

// CheckDomain returns the error that [Server.ApproveDomain] would.
func (r *registry) CheckDomain(d protocol.ApprovedDomain) error {
	return newRegistry("").ApproveDomain("", d)
}

// Decide executes a decision about a secret and a domain. allow_once permits
// the next request within BrokerTTL, allow_always and deny_always last as long
// as the session, and deny changes nothing: the next request asks again.
func (r *registry) Decide(session protocol.SessionID, secret, domain string, d protocol.Decision) error {
	made := &rule{header: defaultHeader, headerFormat: defaultFormat}
	switch d {
	case protocol.AllowOnce:
		made.once = time.Now().Add(protocol.BrokerTTL)
	case protocol.AllowAlways:
	case protocol.DenyAlways:
		made.denied = true
	case protocol.Deny:
		_, err := canonicalDomain(domain)
		return err
	default:
		return protocol.Errorf(protocol.KindInvalid, "unknown decision")
	}
	return r.setRule(session, secret, domain, made, d.Allows())
}

// RevokeDomain removes the decision about a secret and a domain.
func (r *registry) RevokeDomain(session protocol.SessionID, secret, domain string) error {
	domain, err := canonicalDomain(domain)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.domains[session], domainKey{secret, domain})
	return nil
}

// Domains returns where a session's secret may always go, sorted.
func (r *registry) Domains(session protocol.SessionID, secret string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var domains []string
	for key, made := range r.domains[session] {
		if key.secret == secret && !made.denied && made.once.IsZero() {
			domains = append(domains, key.domain)
		}
	}
	slices.Sort(domains)
	return domains
}

// setRule makes a rule. With keep, an existing rule that always allows the
// secret stays, with its header.
func (r *registry) setRule(session protocol.SessionID, secret, domain string, made *rule, keep bool) error {
	domain, err := canonicalDomain(domain)
	if err != nil {
		return err
	}
	if err := protocol.CheckEnvName(secret); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rules := r.domains[session]
	if rules == nil {
		rules = make(map[domainKey]*rule)
		r.domains[session] = rules
	}
	key := domainKey{secret, domain}
	if _, known := rules[key]; !known && len(rules) >= maxDomains {
		return protocol.Errorf(protocol.KindTooMany, "the session has rules for %d domains, no more are kept", maxDomains)
	}
	if before := rules[key]; keep && before != nil && !before.denied && before.once.IsZero() {
		return nil
	}
	rules[key] = made
	return nil
}

// permission returns the rule by which a secret may go to a domain, nil if
// there is none. It consumes a rule for one request.
func (r *registry) permission(session protocol.SessionID, secret, domain string) *rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := domainKey{secret, domain}
	made := r.domains[session][key]
	if made == nil || made.once.IsZero() {
		return made
	}
	delete(r.domains[session], key)
	if time.Now().After(made.once) {
		return nil
	}
	return made
}

// unfit are headers that the broker sets itself, or hop-by-hop headers.
var unfit = map[string]bool{
	"Connection": true, "Content-Length": true, "Host": true, "Keep-Alive": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Expect": true, "Accept-Encoding": true, "Content-Encoding": true,
}

// validHeader reports whether a secret may be sent in this header and format.
func validHeader(name, format string) bool {
	if name == "" || len(name) > maxNameBytes || len(format) > maxNameBytes || unfit[canonicalHeader(name)] {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if c != '-' && c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return false
		}
	}
	return strings.Count(format, "%s") == 1 && strings.Count(format, "%") == 1 && printable(format)
}

// printable reports whether text is valid in a header.
func printable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] == 0x7f {
			return false
		}
	}
	return true
}
