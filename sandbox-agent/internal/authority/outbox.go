package authority

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/sandbox-agent/internal/controlplane"
)

const (
	callbackPath     = "/control/callback"
	approvalsPath    = "/approvals"
	ptyCompletedPath = "/pty-completed"
)

// An Outbox reports to the control plane what happens here. Each kind of report
// has a bounded queue of its own. Nothing depends on a report's arrival.
type Outbox struct {
	// Static after construction.
	credentials *Credentials
	log         *slog.Logger

	callbacks, approvals, turns *queue
}

func newOutbox(credentials *Credentials, log *slog.Logger) *Outbox {
	return &Outbox{
		credentials: credentials, log: log,
		callbacks: newQueue("callbacks", false, log),
		approvals: newQueue("notices of approvals", true, log),
		turns:     newQueue("turns of coding agents", true, log),
	}
}

func (o *Outbox) run(ctx context.Context) {
	var running sync.WaitGroup
	for _, q := range []*queue{o.callbacks, o.approvals, o.turns} {
		running.Go(func() { q.keep(ctx) })
	}
	running.Wait()
}

// Callback reports what became of a command that was executed, if that asks for
// it. The relay that brought the command hears of it as well: this is for when
// it doesn't pass that on.
func (o *Outbox) Callback(command *jws.Command, result protocol.Result) {
	if command.Reply == nil || command.Reply.CallbackToken == "" {
		return
	}
	if !validReply(command.Reply.URL) {
		o.log.Warn("the command's reply.url is not https; its callback isn't sent", "id", command.CommandID)
		return
	}
	token, body, signature := command.Reply.CallbackToken, result.Callback, result.Signature // not the whole command
	o.callbacks.add(report{
		id: string(command.CommandID), bytes: len(body), deadline: command.Deadline().Add(protocol.ClockSkew),
		post: func(ctx context.Context) error {
			header := http.Header{}
			header.Set("Authorization", "Bearer "+token)
			header.Set(protocol.SignatureHeader, base64.StdEncoding.EncodeToString(signature))
			return o.credentials.client.Post(ctx, callbackPath, header, body)
		},
	})
}

// validReply reports whether a reply.url is one that a control plane may have.
// It is checked and never dialled: callbacks go to the control plane that the
// agent knows, whatever a command says.
func validReply(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil {
		return false
	}
	if u.Scheme == "https" {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "http" && (u.Hostname() == "localhost" || err == nil && ip.IsLoopback())
}

// Approval reports a change of an approval, so that the control plane can tell
// people who aren't looking.
func (o *Outbox) Approval(approval protocol.Approval) {
	o.approvals.add(report{id: string(approval.ID), post: func(ctx context.Context) error {
		return o.postApproval(ctx, approval)
	}})
}

func (o *Outbox) postApproval(ctx context.Context, approval protocol.Approval) error {
	body, err := json.Marshal(approval)
	if err != nil {
		return err
	}
	c, at := o.credentials, time.Now().UnixMilli()
	signature, err := c.identity.Device.Sign(protocol.ApprovalTranscript(c.identity.Enrolment.SandboxID, body, at))
	if err != nil {
		return err
	}
	notice, err := json.Marshal(protocol.ApprovalNotice{
		Certificate: c.certificate().token, Approval: body, At: at, Signature: signature,
	})
	if err != nil {
		return err
	}
	return c.client.Post(ctx, approvalsPath, nil, notice)
}

// Turn reports that a coding agent has finished a turn.
func (o *Outbox) Turn(done protocol.PTYCompleted) {
	o.turns.add(report{id: string(done.PTYID), post: func(ctx context.Context) error {
		body, err := json.Marshal(done)
		if err != nil {
			return err
		}
		_, status, err := o.credentials.Do(ctx, http.MethodPost, ptyCompletedPath, body)
		if err == nil && status >= 300 {
			err = controlplane.RefusedWith(status, "")
		}
		return err
	}})
}
