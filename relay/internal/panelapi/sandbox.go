package panelapi

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
)

const (
	// changeTimeout bounds a change, from the request to the sandbox's answer.
	changeTimeout = 30 * time.Second
	// askTimeout bounds a question to the sandbox, maxAnswer its answer in bytes.
	askTimeout = 5 * time.Second
	maxAnswer  = 1 << 20
)

// program is what runs in the panel's terminal.
const program = "claude"

// What becomes of the terminal when the panel's socket is gone: seed 000's panel
// never comes back, a later one does.
const (
	detachClose             = op.DetachClose
	detachKeep  op.OnDetach = "60s"
)

// under is on whose behalf something is done: whoever bears a grant, in its session.
type under struct {
	grant  *jws.Grant
	bearer string // the grant in compact form
}

// target is a terminal of the session.
func (u under) target(pty protocol.PTYID) protocol.CommandTarget {
	return protocol.CommandTarget{SandboxID: u.grant.Sandbox, SessionID: u.grant.Session, PTYID: pty}
}

// change has an operation on a terminal signed and runs it. The same key makes it
// the same command.
func (a *API) change(ctx context.Context, by under, do op.Op, pty protocol.PTYID, key string) error {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	env, err := a.Signer.Sign(ctx, dispatch.SignRequest{Grant: by.bearer, Op: do, Target: by.target(pty), IdempotencyKey: key})
	if err != nil {
		return err
	}
	_, err = a.Dispatcher.Run(ctx, env)
	return err
}

// createTerminal makes the panel's terminal, in which nothing runs yet.
func (a *API) createTerminal(ctx context.Context, by under, pty protocol.PTYID, cols, rows int, detach op.OnDetach) error {
	create := &op.PTYCreate{
		CreatorID: by.grant.Subject, Command: program, Cols: cols, Rows: rows, Spawn: op.SpawnLazy, OnDetach: detach,
	}
	err := a.change(ctx, by, op.Op{Kind: op.KindPTYCreate, Body: create}, pty, "panel-"+string(pty))
	if protocol.KindOf(err) == protocol.KindConflict { // it came back by itself
		return nil
	}
	return err
}

// closeTerminal ends the panel's terminal.
func (a *API) closeTerminal(ctx context.Context, by under, pty protocol.PTYID) error {
	return a.change(ctx, by, op.Op{Kind: op.KindPTYClose}, pty, rand.Text())
}

// showTab tells the terminal which tab its person looks at.
func (a *API) showTab(ctx context.Context, by under, pty protocol.PTYID, now tab) error {
	body := &op.PanelTab{TabID: now.ID, URL: op.MaskTabURL(now.URL), Title: op.CleanTabTitle(now.Title)}
	return a.change(ctx, by, op.Op{Kind: op.KindPanelTab, Body: body}, pty, rand.Text())
}

// ask gets what the sandbox says of the session.
func (a *API) ask(ctx context.Context, by under, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	session, err := a.Tunnels.Session(by.grant.Sandbox)
	if err != nil {
		return err
	}
	url := "http://" + reverseproxy.Host + "/sessions/" + string(by.grant.Session) + path
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return protocol.Fault(protocol.KindInvalid, err)
	}
	r.Header.Set("User-Agent", "")
	r.Close = true
	stream, _, err := session.Open(ctx, protocol.LaneBulk, protocol.Open{Kind: protocol.StreamHTTP, Grant: by.bearer})
	if err != nil {
		return err
	}
	defer stream.Close()
	defer context.AfterFunc(ctx, func() { stream.Close() })()
	if err := r.Write(stream); err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(stream), r)
	if err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return protocol.Fault(protocol.KindUnavailable, err)
	case resp.StatusCode >= 300:
		return protocol.Fault(protocol.KindByStatus(resp.StatusCode), errors.New(resp.Status))
	case json.Unmarshal(body, into) != nil:
		return protocol.Fault(protocol.KindUpstream, errors.New("panelapi: the sandbox's answer is not what was asked for"))
	}
	return nil
}

// thereFor fails with kind not_found unless the sandbox has a terminal that goes on.
func (a *API) thereFor(ctx context.Context, by under, pty protocol.PTYID) error {
	var list protocol.PTYList
	if err := a.ask(ctx, by, "/ptys", &list); err != nil {
		return err
	}
	for _, one := range list.PTYs {
		if one.ID == pty && one.Exited == nil {
			return nil
		}
	}
	return protocol.Fault(protocol.KindNotFound, nil)
}
