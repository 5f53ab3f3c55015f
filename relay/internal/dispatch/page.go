package dispatch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/pagestream"
)

// Browsers returns the browsers whose pages would get a command now, if it was
// submitted here. It fails as Submit does.
func (d *Dispatcher) Browsers(ctx context.Context, env protocol.CommandEnvelope) ([]string, error) {
	command, expired, err := d.verify(ctx, env)
	switch {
	case err != nil:
		return nil, err
	case expired != nil:
		return nil, expired
	case command.Audience != jws.AudienceExtension:
		return nil, protocol.Errorf(protocol.KindInvalid, "the command is for no browser")
	}
	return d.opts.Pages.Browsers(command.UserID, scopeOf(command)), nil
}

// scopeOf says which pages get a command.
func scopeOf(command *jws.Command) pagestream.Scope {
	return pagestream.Scope{
		Needs: op.Needs(command.Kind()), Session: command.Target.SessionID, Ends: command.Deadline(),
		Browser: command.Target.BrowserID,
	}
}

// submitToPages is SubmitTo for the audience of browsers.
func (d *Dispatcher) submitToPages(ctx context.Context, command *jws.Command, env protocol.CommandEnvelope, expired error, browser string) (*Record, error) {
	if expired != nil {
		record, known := d.Lookup(command.CommandID)
		if !known || record.failed() || !same(record.Command, command) {
			return nil, expired
		}
		return record, nil
	}
	scope := scopeOf(command)
	scope.Browser = cmp.Or(scope.Browser, browser)
	switch {
	case scope.Needs == "":
		return nil, protocol.Errorf(protocol.KindUnsupported, "%s is no operation that is known here", opName(command))
	case command.UserID == "":
		return nil, protocol.Errorf(protocol.KindInvalid, "a command to a browser must name its user")
	case command.Reply == nil || command.Reply.CallbackToken == "":
		return nil, protocol.Errorf(protocol.KindInvalid, "a command to a browser must say how it is answered")
	}
	return d.enter(ctx, command, func(record *Record) error {
		if !time.Now().Before(command.Deadline()) { // the executor's clock may disagree, but its answer would not count
			return protocol.Errorf(protocol.KindExpired, "command: expired")
		}
		offered, err := d.opts.Pages.Offer(command.UserID, scope, env)
		if err != nil {
			return err
		}
		d.running.Go(func() {
			defer offered.Withdraw()
			d.await(record, offered, scope.Browser != "")
		})
		return nil
	})
}

// opName returns the operation's kind for display, if it is short enough.
func opName(command *jws.Command) string {
	if kind := command.Kind(); len(kind) <= 64 {
		return kind
	}
	return "this"
}

// absence is how long a named browser may be without a page before that is said:
// longer than a page takes that has lost its stream.
const absence = 5 * time.Second

// errNoPage says that a command didn't run, and what it needs.
var errNoPage = protocol.Errorf(protocol.KindUnavailable, "no page of that browser is connected: the console must be open there, with the extension")

// await ends record if nobody answers in time, and soon if the browser that it is
// for isn't there.
func (d *Dispatcher) await(record *Record, offered pagestream.Offered, named bool) {
	c := record.Command
	timer := time.NewTimer(time.Until(c.Deadline()))
	defer timer.Stop()
	early := time.NewTimer(absence)
	defer early.Stop()
	if !named {
		early.Stop()
	}
	err := error(protocol.Errorf(protocol.KindExpired, "nobody answered the command in time"))
	for over := false; !over; {
		over = true
		select {
		case <-record.Done:
		case <-timer.C:
		case <-early.C:
			if over = offered.Recall(); over {
				err = errNoPage
			}
		case <-d.ctx.Done():
			err = unknown(d.ctx.Err()) // a page may have the command
		}
	}
	d.mu.Lock()
	if !record.over() {
		d.finish(record, protocol.Result{}, err)
	}
	d.mu.Unlock()
	d.report(record, record.Result, record.Err)
}

// An Answer is a callback as an executor posted it.
type Answer struct {
	Token     string // the bearer it was posted with
	Body      []byte
	Callback  protocol.ExecutionCallback // what Body says
	Signature []byte                     // of the executor, if it has a key
}

// Answer takes the callback of a command that this Dispatcher sent. The first
// one in time ends a page's command; a repetition or a late one changes
// nothing. A sandbox's command ends only with its RESULT, which comes through
// the sandbox's own tunnel, as everybody who carried the command knows its
// callback token. known is false if the command was not sent from here.
func (d *Dispatcher) Answer(a Answer) (known bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	record := d.records[a.Callback.CommandID]
	if record == nil {
		return false, nil
	}
	c := record.Command
	if c.Reply == nil || !equal(c.Reply.CallbackToken, a.Token) {
		return true, protocol.Fault(protocol.KindUnauthenticated, nil)
	}
	if a.Callback.TraceID != "" && a.Callback.TraceID != c.TraceID {
		return true, protocol.Errorf(protocol.KindInvalid, "traceId is not the command's")
	}
	if c.Audience != jws.AudienceExtension || record.over() || time.Now().After(c.Deadline()) {
		return true, nil
	}
	result := protocol.Result{Callback: a.Body, Signature: a.Signature}
	if a.Callback.Error != nil {
		result.Kind = protocol.KindByName(a.Callback.Error.Name)
	}
	d.finish(record, result, nil)
	return true, nil
}

// equal compares two secrets in constant time.
func equal(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return a != "" && subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
