package controlplane

import (
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/provider"
	"github.com/fairlead/fairlead/protocol"
)

const (
	maxURLBytes     = 2 << 10
	maxTitleBytes   = 256
	maxCommandBytes = 1 << 10
)

// A browserBody is a page on the board.
type browserBody struct {
	URL   string `json:"url"`
	Title string `json:"title,omitempty"`
	place
}

func (b *browserBody) check() error {
	if err := checkPageURL("body.url", b.URL); err != nil {
		return err
	}
	if err := checkOneLine("body.title", b.Title, maxTitleBytes); err != nil {
		return err
	}
	return b.place.check()
}

// checkPageURL takes what a console may open for somebody who clicks on it.
func checkPageURL(name, text string) error {
	u, err := url.Parse(text)
	printable := !strings.ContainsFunc(text, func(r rune) bool { return r == ' ' || !unicode.IsPrint(r) })
	switch {
	case len(text) > maxURLBytes:
		return protocol.Errorf(protocol.KindInvalid, "%s is longer than %d bytes", name, maxURLBytes)
	case err != nil || !printable || !utf8.ValidString(text) || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https":
		return protocol.Errorf(protocol.KindInvalid, "%s: want an http or https URL", name)
	case u.User != nil:
		return protocol.Errorf(protocol.KindInvalid, "%s must not hold a password", name)
	}
	return nil
}

// checkOneLine takes one line of text that looks as it is: nothing in it is
// hidden, or drawn in another order.
func checkOneLine(name, text string, limit int) error {
	if len(text) > limit {
		return protocol.Errorf(protocol.KindInvalid, "%s is longer than %d bytes", name, limit)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return protocol.Errorf(protocol.KindInvalid, "%s must be one line of printable text", name)
	}
	return nil
}

// A terminalBody is a terminal's place on the board. Without a PTY there is none
// yet: whoever may open terminals opens it, and it is theirs to read Command
// before that.
type terminalBody struct {
	Name    string             `json:"name"`
	Command string             `json:"command,omitempty"` // what it is meant to run
	Session protocol.SessionID `json:"session_id,omitempty"`
	PTY     protocol.PTYID     `json:"pty_id,omitempty"`
	place
}

func (t *terminalBody) check() error {
	switch {
	case t.Session != "" && !protocol.ValidID(t.Session):
		return protocol.Errorf(protocol.KindInvalid, "body.session_id is not an id")
	case t.PTY != "" && !protocol.ValidID(t.PTY):
		return protocol.Errorf(protocol.KindInvalid, "body.pty_id is not an id")
	case t.PTY != "" && t.Session == "":
		return protocol.Errorf(protocol.KindInvalid, "body.pty_id means nothing without body.session_id")
	}
	if err := checkOneLine("body.name", t.Name, maxTitleBytes); err != nil {
		return err
	}
	if err := checkOneLine("body.command", t.Command, maxCommandBytes); err != nil {
		return err
	}
	return t.place.check()
}

// An integrationBody is a provider's place on the board. It stands for no
// account: which one a terminal may use is a person's choice, made elsewhere.
type integrationBody struct {
	Provider string `json:"provider"`
	place
}

func (i *integrationBody) check() error {
	if all := provider.Providers(); !slices.Contains(all, i.Provider) {
		return protocol.Errorf(protocol.KindInvalid, "body.provider: want one of %s", strings.Join(all, ", "))
	}
	return i.place.check()
}

// An edgeBody joins two items.
type edgeBody struct {
	From  string `json:"from"` // an item's id
	To    string `json:"to"`
	Label string `json:"label,omitempty"`
}

func (e *edgeBody) check() error {
	if !protocol.ValidID(e.From) || !protocol.ValidID(e.To) {
		return protocol.Errorf(protocol.KindInvalid, "body.from and body.to must be ids of items")
	}
	return checkOneLine("body.label", e.Label, maxTitleBytes)
}
