package sidebarapi

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/fairlead/fairlead/deploy/program/pause"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/access"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
)

const (
	// commandTimeout bounds a change, from the request to the sandbox's answer.
	commandTimeout = 30 * time.Second
	// askAgain is how long the same command isn't sent again after nobody knew what
	// became of it.
	askAgain = time.Second
)

// A body is what a panel sends: a JSON object whose other members don't count.
type body map[string]json.RawMessage

// text returns a member that is a string, else "".
func (b body) text(name string) (s string) {
	_ = json.Unmarshal(b[name], &s)
	return s
}

// number returns a member that is a number, 0 where it is absent or null. It fails
// for anything else.
func (b body) number(name string) (n int64, err error) {
	if raw := b[name]; len(raw) > 0 && json.Unmarshal(raw, &n) != nil {
		return 0, protocol.Errorf(protocol.KindInvalid, "%s is no number", name)
	}
	return n, nil
}

// answerOf is what a panel is told of what it has asked for.
func answerOf(asked op.Body, r op.SidebarResult) map[string]any {
	answer := map[string]any{"ok": true}
	switch asked := asked.(type) {
	case *op.SidebarSend:
		if r.Position > 0 {
			answer["queued"], answer["position"] = true, r.Position
		} else {
			answer["processing"] = true
		}
	case *op.SidebarStop:
		if !asked.Kill {
			answer["queuedMessages"] = r.QueuedMessages
		}
	case *op.SidebarSwitch:
		answer["activeTab"] = r.ActiveTab
	case *op.Plain:
		answer["session"] = r.Session
	}
	return answer
}

// change serves a route that changes something.
func (a *API) change(asked func(body) (op.Op, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := a.bearer(r, protocol.CapChat, changes)
		var b body
		if err == nil {
			b, err = readBody(w, r)
		}
		var do op.Op
		if err == nil {
			do, err = asked(b)
		}
		var done protocol.OpResult
		if err == nil {
			done, err = a.carryOut(r, c, do)
		}
		var result op.SidebarResult
		if err == nil && len(done.Sidebar) > 0 && json.Unmarshal(done.Sidebar, &result) != nil {
			err = errNonsense
		}
		if err != nil {
			a.refuse(w, err)
			return
		}
		access.WriteJSON(w, http.StatusOK, answerOf(do.Body, result))
	}
}

var errNonsense = protocol.Errorf(protocol.KindUpstream, "the sandbox's answer makes no sense")

// readBody returns a request's body, whatever its type is said to be; none is an
// empty object.
func readBody(w http.ResponseWriter, r *http.Request) (body, error) {
	data, err := access.ReadBody(w, r, maxBody)
	if err != nil {
		return nil, err
	}
	b := body{}
	if len(strings.TrimSpace(string(data))) > 0 && protocol.UnmarshalObject(data, &b) != nil {
		return nil, protocol.Errorf(protocol.KindInvalid, "the body must be a JSON object")
	}
	return b, nil
}

// carryOut has an operation signed and carried out. While nobody knows what became
// of it the same command is sent again, which runs only once.
func (a *API) carryOut(r *http.Request, c caller, do op.Op) (done protocol.OpResult, err error) {
	if err := do.Body.Check(); err != nil {
		return done, plainly(err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), commandTimeout)
	defer cancel()
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		key = rand.Text()
	}
	if len(key) > protocol.MaxIDBytes {
		return done, protocol.Errorf(protocol.KindInvalid, "Idempotency-Key is over %d bytes", protocol.MaxIDBytes)
	}
	env, err := a.Signer.Sign(ctx, dispatch.SignRequest{
		Grant: c.token, Op: do, IdempotencyKey: key,
		Target: protocol.CommandTarget{SandboxID: c.grant.Sandbox, SessionID: c.grant.Session},
	})
	if err != nil {
		return done, err
	}
	done, err = a.Dispatcher.Run(ctx, env)
	for protocol.KindOf(err) == protocol.KindUnknown && !errors.Is(err, dispatch.ErrRestarted) && pause.For(ctx, askAgain) == nil {
		done, err = a.Dispatcher.Run(ctx, env)
	}
	return done, err
}

// plainly returns what is wrong with an operation without its name for it.
func plainly(err error) error {
	e := protocol.AsError(err)
	return protocol.Errorf(e.Kind, "%s", strings.TrimPrefix(e.Message, "op."))
}

// command is POST /sidebar-command {message, activeTabUrl, tabId?}.
func command(b body) (op.Op, error) {
	send := &op.SidebarSend{Message: strings.TrimSpace(b.text("message")), URL: pageURL(b.text("activeTabUrl"))}
	if send.Message == "" {
		return op.Op{}, protocol.Errorf(protocol.KindInvalid, "Empty message")
	}
	var err error
	send.TabID, err = b.number("tabId")
	return op.Op{Kind: op.KindSidebarSend, Body: send}, err
}

// pageURL returns a page's URL as the seed cleans it, "" for what is none.
func pageURL(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	if !strings.HasPrefix(text, "http://") && !strings.HasPrefix(text, "https://") {
		return ""
	}
	if runes := []rune(text); len(runes) > op.MaxSidebarURL {
		text = string(runes[:op.MaxSidebarURL])
	}
	return text
}

// clearChat is POST /sidebar-chat/clear {tabId?}.
func clearChat(b body) (op.Op, error) {
	tab, err := b.number("tabId")
	return op.Op{Kind: op.KindSidebarClear, Body: &op.SidebarClear{TabID: tab}}, err
}

// dismiss is POST /sidebar-queue/dismiss {index, tabId?}.
func dismiss(b body) (op.Op, error) {
	tab, err := b.number("tabId")
	if err != nil {
		return op.Op{}, err
	}
	index, err := b.number("index")
	if len(b["index"]) == 0 {
		err = protocol.Errorf(protocol.KindInvalid, "Invalid index")
	}
	return op.Op{Kind: op.KindSidebarDismiss, Body: &op.SidebarDismiss{Index: int(index), TabID: tab}}, err
}

// stop is POST /sidebar-agent/stop {tabId?}.
func stop(b body) (op.Op, error) {
	tab, err := b.number("tabId")
	return op.Op{Kind: op.KindSidebarStop, Body: &op.SidebarStop{TabID: tab}}, err
}

// kill is POST /sidebar-agent/kill {tabId?}.
func kill(b body) (op.Op, error) {
	tab, err := b.number("tabId")
	return op.Op{Kind: op.KindSidebarStop, Body: &op.SidebarStop{TabID: tab, Kill: true}}, err
}

// switchTab is POST /sidebar-tabs/switch {id}.
func switchTab(b body) (op.Op, error) {
	id, err := b.number("id")
	if err != nil || id <= 0 || id >= 1<<31 {
		return op.Op{}, protocol.Errorf(protocol.KindInvalid, "Invalid tab id")
	}
	return op.Op{Kind: op.KindSidebarSwitch, Body: &op.SidebarSwitch{TabID: id}}, nil
}

// renew is POST /sidebar-session/new.
func renew(body) (op.Op, error) {
	return op.Op{Kind: op.KindSidebarNew, Body: &op.Plain{}}, nil
}

// event is POST /sidebar-agent/event, by which the seed's agent tells what it does.
// Here the sandbox knows: nothing is done with it.
func (a *API) event(w http.ResponseWriter, r *http.Request) {
	_, err := a.bearer(r, protocol.CapChat, changes)
	if err == nil {
		_, err = access.ReadBody(w, r, maxBody)
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	access.WriteJSON(w, http.StatusOK, map[string]any{"ok": true})
}

// openStreams is POST /sse-session: it exchanges a grant for the cookie of streams.
func (a *API) openStreams(w http.ResponseWriter, r *http.Request) {
	c, err := a.bearer(r, protocol.CapView, streams)
	var cookie *http.Cookie
	var ends time.Time
	if err == nil {
		cookie, ends, err = a.Cookies.Issue(c.grant, c.token, a.Origins.Public(r))
	}
	if err != nil {
		a.refuse(w, err)
		return
	}
	http.SetCookie(w, cookie)
	access.WriteJSON(w, http.StatusOK, map[string]any{"expiresAt": ends.UnixMilli(), "cookie": access.PanelStreamCookieName})
}
