package op

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/taburl"
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

// MaskTabURL returns the URL of a browser's tab as others may read it, bounded and
// without what is secret. It is empty for what is not a URL of http or https.
func MaskTabURL(raw string) string {
	masked := taburl.Mask(raw)
	u, err := url.Parse(masked)
	if err != nil || u.Host == "" || !strings.EqualFold(u.Scheme, "http") && !strings.EqualFold(u.Scheme, "https") {
		return ""
	}
	return cut(masked, MaxTabURL)
}

// CleanTabTitle returns the title of a tab as others may read it.
func CleanTabTitle(raw string) string { return cut(taburl.Printed(raw), MaxTabTitle) }

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
