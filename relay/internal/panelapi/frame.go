package panelapi

import (
	"encoding/json"

	"github.com/fairlead/fairlead/protocol"
)

// Types of the text frames that a panel sends (chat-and-shell.md B1).
const (
	frameResize    = "resize"    // cols, rows
	frameTabSwitch = "tabSwitch" // tabId, url, title
	frameTabState  = "tabState"  // active {tabId, url, title}
	frameStart     = "start"     // starts the program without a key
	framePing      = "ping"      // answered by pong
	framePong      = "pong"
	frameKeepalive = "keepalive"
	frameReauth    = "reauth" // grant: ours, renews the socket's
)

// Sizes that a panel may ask for, and the one that it has before it asks.
const (
	minSide     = 2
	defaultCols = 80
	defaultRows = 24
)

// A tab is what the panel's person looks at in her browser.
type tab struct {
	ID    int64  `json:"tabId"`
	URL   string `json:"url"`
	Title string `json:"title"`
}

// A frame is a text frame of a panel.
type frame struct {
	Type       string
	Cols, Rows int
	Tab        tab
	Grant      string
	TS         json.RawMessage // of a ping: a number, or nothing
}

// decodeFrame reads a text frame. Other programs' panels send more than we know, so
// what isn't understood is no error: it counts as nothing.
func decodeFrame(data []byte) (f frame, ok bool) {
	var raw struct {
		Type       string          `json:"type"`
		Cols, Rows json.RawMessage // a number each
		TabID      json.RawMessage `json:"tabId"`
		URL        string          `json:"url"`
		Title      string          `json:"title"`
		Active     json.RawMessage `json:"active"`
		Grant      string          `json:"grant"`
		TS         json.RawMessage `json:"ts"`
	}
	if protocol.UnmarshalObject(data, &raw) != nil {
		return frame{}, false
	}
	f.Type = raw.Type
	switch raw.Type {
	case frameResize:
		cols, wide := side(raw.Cols, protocol.MaxCols)
		rows, high := side(raw.Rows, protocol.MaxRows)
		f.Cols, f.Rows = cols, rows
		return f, wide && high
	case frameTabSwitch:
		id, known := number(raw.TabID)
		f.Tab = tab{int64(id), raw.URL, raw.Title}
		return f, known
	case frameTabState:
		var active struct {
			TabID json.RawMessage `json:"tabId"`
			URL   string          `json:"url"`
			Title string          `json:"title"`
		}
		if len(raw.Active) == 0 || protocol.UnmarshalObject(raw.Active, &active) != nil {
			return frame{}, false
		}
		id, known := number(active.TabID)
		f.Tab = tab{int64(id), active.URL, active.Title}
		return f, known
	case frameReauth:
		f.Grant = raw.Grant
		return f, raw.Grant != ""
	case framePing:
		if _, known := number(raw.TS); known {
			f.TS = raw.TS
		}
		return f, true
	case frameStart, framePong, frameKeepalive:
		return f, true
	}
	return frame{}, false
}

// number reads a JSON number that a browser could have made.
func number(raw json.RawMessage) (n float64, ok bool) {
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &n) != nil {
		return 0, false
	}
	return n, n > -(1<<53) && n < 1<<53
}

// side reads one dimension of a size, brought within its limits.
func side(raw json.RawMessage, most int) (int, bool) {
	n, ok := number(raw)
	return min(max(int(n), minSide), most), ok
}
