// Package policy decides what an attached account may be used for: which
// actions, and on what.
package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

// The kinds of what an action touches.
const (
	Sender    = "sender"    // e-mail address
	Recipient = "recipient" // e-mail address
	Repo      = "repo"      // owner/name
	Folder    = "folder"    // id
	Calendar  = "calendar"  // id
)

const (
	// MaxRules bounds each list of a policy, and MaxRuleBytes what stands in it.
	MaxRules     = 200
	MaxRuleBytes = 256
)

// A Policy says what an account may be used for. Its zero value allows
// everything; what is given when nobody chose is [Default].
type Policy struct {
	ReadOnly bool     `json:"read_only,omitempty"`
	Allow    []string `json:"allow,omitempty"` // actions, "gmail.search" or "gmail.*"; empty: all
	Deny     []string `json:"deny,omitempty"`  // actions, whatever Allow says

	Gmail    *Mail      `json:"gmail,omitempty"`
	GitHub   *Code      `json:"github,omitempty"`
	Drive    *Files     `json:"google_drive,omitempty"`
	Calendar *Calendars `json:"google_calendar,omitempty"`
}

// Mail limits messages. In a rule "*" stands for any characters but "@".
type Mail struct {
	Senders    []string `json:"senders,omitempty"`    // of what is read or changed; empty: all
	Recipients []string `json:"recipients,omitempty"` // of what is sent; empty: all
}

// Code limits repositories. In a rule "*" stands for any characters but "/".
type Code struct {
	Repos []string `json:"repos,omitempty"` // "owner/name"; empty: all
}

// Files limits files to those directly in a folder.
type Files struct {
	Folders []string `json:"folders,omitempty"` // ids; empty: all
}

// Calendars limits calendars.
type Calendars struct {
	Calendars []string `json:"calendars,omitempty"` // ids, "primary" is one; empty: all
}

// Default is the policy of an attachment for which nobody chose one.
func Default() Policy { return Policy{ReadOnly: true} }

// An Action is what is asked for.
type Action struct {
	Name     string // "gmail.search"
	ReadOnly bool
}

// A Resource is something that an action touches.
type Resource struct{ Kind, Value string }

// A Decision says whether an action may go ahead, and if not why.
type Decision struct {
	Allowed bool
	Reason  string
}

// Parse decodes and checks a policy for an account of provider, whose actions
// must be all there are: a rule for an unknown one is an error, since it may be
// one that was meant to be denied.
func Parse(provider string, actions []Action, data []byte) (Policy, error) {
	var p Policy
	if err := protocol.UnmarshalStrict(data, &p); err != nil {
		return Policy{}, protocol.Errorf(protocol.KindInvalid, "policy: %v", err)
	}
	if err := p.check(provider, actions); err != nil {
		return Policy{}, protocol.Errorf(protocol.KindInvalid, "policy: %v", err)
	}
	return p, nil
}

// JSON returns the policy as it is kept.
func (p Policy) JSON() (json.RawMessage, error) { return json.Marshal(p) }

func (p Policy) check(provider string, actions []Action) error {
	for _, list := range []struct {
		name  string
		rules []string
	}{{"allow", p.Allow}, {"deny", p.Deny}} {
		if len(list.rules) > MaxRules {
			return fmt.Errorf("%s: more than %d rules", list.name, MaxRules)
		}
		for _, rule := range list.rules {
			known := func(a Action) bool { return a.Name == rule }
			if rule != provider+".*" && !slices.ContainsFunc(actions, known) {
				return fmt.Errorf("%s: no action of %s is called %q", list.name, provider, clip(rule))
			}
		}
	}
	for _, section := range []struct {
		provider string
		is       bool
	}{
		{"gmail", p.Gmail != nil}, {"github", p.GitHub != nil},
		{"google_drive", p.Drive != nil}, {"google_calendar", p.Calendar != nil},
	} {
		if section.is && section.provider != provider {
			return fmt.Errorf("%s: the account is one of %s", section.provider, provider)
		}
	}
	for kind, rules := range p.limits() {
		if err := checkRules(kind, rules); err != nil {
			return err
		}
	}
	return nil
}

func checkRules(kind string, rules []string) error {
	if len(rules) > MaxRules {
		return fmt.Errorf("%ss: more than %d rules", kind, MaxRules)
	}
	for _, rule := range rules {
		strange := func(r rune) bool { return r <= ' ' || r == 0x7f }
		if rule == "" || len(rule) > MaxRuleBytes || !utf8.ValidString(rule) || strings.ContainsFunc(rule, strange) {
			return fmt.Errorf("%ss: %q is no rule", kind, clip(rule))
		}
		if kind == Repo && rule != "*" && strings.Count(rule, "/") != 1 {
			return fmt.Errorf(`%ss: %q: want "owner/name" or "owner/*"`, kind, clip(rule))
		}
	}
	return nil
}

// clip makes a text of others short enough for an error.
func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}

// limits returns the rules of each kind that has some.
func (p Policy) limits() map[string][]string {
	limits := make(map[string][]string)
	add := func(kind string, rules []string) {
		if len(rules) > 0 {
			limits[kind] = rules
		}
	}
	if p.Gmail != nil {
		add(Sender, p.Gmail.Senders)
		add(Recipient, p.Gmail.Recipients)
	}
	if p.GitHub != nil {
		add(Repo, p.GitHub.Repos)
	}
	if p.Drive != nil {
		add(Folder, p.Drive.Folders)
	}
	if p.Calendar != nil {
		add(Calendar, p.Calendar.Calendars)
	}
	return limits
}

// Limited reports whether the policy says on what actions may work, so that an
// action's resources must be known and its answer filtered.
func (p Policy) Limited() bool { return len(p.limits()) > 0 }

// Permits decides by the action alone.
func (p Policy) Permits(a Action) Decision {
	switch {
	case listed(p.Deny, a.Name):
		return denied("the policy denies %s", a.Name)
	case len(p.Allow) > 0 && !listed(p.Allow, a.Name):
		return denied("the policy doesn't allow %s", a.Name)
	case p.ReadOnly && !a.ReadOnly:
		return denied("the policy allows reading only, and %s changes something", a.Name)
	}
	return Decision{Allowed: true}
}

// Decide decides by the action and all that it touches. An action that changes
// something must touch something of a kind that the policy limits, if it is
// about that kind at all: where that can't be told, it is denied. What an action
// reads may be left to [Policy.Keep].
func (p Policy) Decide(a Action, touched []Resource) Decision {
	if d := p.Permits(a); !d.Allowed {
		return d
	}
	if d := p.Excludes(touched); !d.Allowed || a.ReadOnly {
		return d
	}
	limits := p.limits()
	seen := make(map[string]bool)
	for _, r := range touched {
		seen[r.Kind] = true
	}
	for _, kind := range []string{Sender, Recipient, Repo, Folder, Calendar} {
		if len(limits[kind]) > 0 && !seen[kind] && !(kind == Sender && seen[Recipient]) && !(kind == Recipient && seen[Sender]) {
			return denied("the policy limits the %s, and it can't be told which one this is about", kind)
		}
	}
	return Decision{Allowed: true}
}

// Excludes decides by what an action touches alone.
func (p Policy) Excludes(touched []Resource) Decision {
	for _, r := range touched {
		if !p.Keep(r.Kind, r.Value) {
			return denied("the policy excludes the %s %q", r.Kind, clip(r.Value))
		}
	}
	return Decision{Allowed: true}
}

// Keep reports whether the policy lets something of a kind be touched or shown.
func (p Policy) Keep(kind, value string) bool {
	rules := p.limits()[kind]
	if len(rules) == 0 {
		return true
	}
	return slices.ContainsFunc(rules, func(rule string) bool { return matches(kind, rule, value) })
}

func denied(format string, args ...any) Decision {
	return Decision{Reason: fmt.Sprintf(format, args...)}
}

// listed reports whether a list has the action, or all of its provider.
func listed(rules []string, action string) bool {
	provider, _, _ := strings.Cut(action, ".")
	return slices.Contains(rules, action) || slices.Contains(rules, provider+".*")
}

// matches reports whether a rule covers a value. What isn't one plain value, for
// example two addresses in one, is covered by nothing.
func matches(kind, rule, value string) bool {
	switch kind {
	case Sender, Recipient:
		if strings.Count(value, "@") != 1 || strings.ContainsAny(value, " \t\r\n,;<>\"") {
			return false
		}
		return glob(lower(rule), lower(value), '@')
	case Repo:
		if strings.Count(value, "/") != 1 {
			return false
		}
		if rule == "*" {
			return true
		}
		return glob(lower(rule), lower(value), '/')
	case Calendar:
		return lower(rule) == lower(value)
	}
	return rule == value
}

// lower returns text with its ASCII letters in lower case. Others stay: the
// Kelvin sign is a letter of its own in an address, though Unicode has k for it.
func lower(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}

// glob reports whether pattern covers all of text: "*" stands for any number of
// bytes but sep. Where the pattern has no sep, it stands for every byte.
func glob(pattern, text string, sep byte) bool {
	if strings.IndexByte(pattern, sep) < 0 {
		sep = 0
	}
	star, mark := -1, 0
	p, t := 0, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && pattern[p] == text[t]:
			p++
			t++
		case star >= 0 && text[mark] != sep:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
