package op

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

// KindPanelTab tells a side panel's terminal which tab its person looks at.
const KindPanelTab = "panel.tab"

var panels = []Spec{
	{Kind: KindPanelTab, Needs: protocol.CapControl, Target: TargetTerminal, Body: (*PanelTab)(nil)},
}

const (
	// MaxTabURL bounds the URL of a tab, in bytes (seed 000), and MaxTabTitle its
	// title.
	MaxTabURL   = 2048
	MaxTabTitle = 512
)

// PanelTab is the body of panel.tab.
type PanelTab struct {
	TabID int64  `json:"tabId"`
	URL   string `json:"url,omitempty"` // as MaskTabURL returns it
	Title string `json:"title,omitempty"`
}

// Check bounds the tab.
func (b *PanelTab) Check() error {
	if len(b.URL) > MaxTabURL || len(b.Title) > MaxTabTitle {
		return protocol.Errorf(protocol.KindInvalid, "op.url must be at most %d bytes, op.title %d", MaxTabURL, MaxTabTitle)
	}
	return nil
}

// hiddenValue stands for what is masked.
const hiddenValue = "[REDACTED]"

// secretParameters are what the names of parameters are called that hold secrets.
var secretParameters = []string{"password", "passwd", "token", "secret", "key", "auth", "bearer"}

// MaskTabURL returns the URL of a browser's tab as others may read it: without
// control characters, a password and the values of parameters that are called as
// secrets are, in its query and behind its #. It is empty for what is not a URL of
// http or https.
func MaskTabURL(raw string) string {
	raw = clean(raw)
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || !strings.EqualFold(u.Scheme, "http") && !strings.EqualFold(u.Scheme, "https") {
		return ""
	}
	head, fragment, hasFragment := strings.Cut(raw, "#")
	path, query, hasQuery := strings.Cut(head, "?")
	if u.User != nil {
		scheme, rest, _ := strings.Cut(path, "://")
		host, tail, slash := strings.Cut(rest, "/")
		path = scheme + "://" + host[strings.LastIndexByte(host, '@')+1:]
		if slash {
			path += "/" + tail
		}
	}
	if hasQuery {
		path += "?" + maskParameters(query)
	}
	if hasFragment {
		path += "#" + maskParameters(fragment)
	}
	return cut(path, MaxTabURL)
}

// CleanTabTitle returns the title of a tab as others may read it.
func CleanTabTitle(raw string) string { return cut(clean(raw), MaxTabTitle) }

// maskParameters masks the values of parameters, wherever a program may find them.
func maskParameters(query string) string {
	var masked strings.Builder
	for query != "" {
		end := strings.IndexAny(query, "&;?")
		if end < 0 {
			end = len(query)
		}
		name, value, ok := strings.Cut(query[:end], "=")
		if masked.WriteString(name); ok {
			if value != "" && secretParameter(name) {
				value = hiddenValue
			}
			masked.WriteString("=" + value)
		}
		if end == len(query) {
			break
		}
		masked.WriteByte(query[end])
		query = query[end+1:]
	}
	return masked.String()
}

// secretParameter reports whether a parameter's value is hidden.
func secretParameter(name string) bool {
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	name = strings.ToLower(name)
	for _, word := range secretParameters {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// clean removes what isn't printed, and what isn't UTF-8.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, s)
}

// cut returns the first characters of s, at most so many bytes.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}
