package shellapi

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/relay/internal/dispatch"
	"github.com/fairlead/fairlead/relay/internal/hub"
)

const (
	// openTimeout bounds how long a client waits for its shell.
	openTimeout = time.Minute
	// keepFor is how long a shell runs that nobody watches (seed 002).
	keepFor = "30m"
)

// An opener opens shells, and starts and closes them by signed operations.
type opener struct {
	hubs       *hub.Set
	signer     *dispatch.Signer
	dispatcher *dispatch.Dispatcher
}

// A found is a shell that is there.
type found struct {
	handle  *hub.Handle
	outcome string
}

// An opening is one attempt to open a shell.
type opening struct {
	// Static.
	opener
	ctx    context.Context
	grant  *jws.Grant
	token  string
	key    hub.Key
	create *op.PTYCreate
}

// open returns the shell that r asks for in a session under a grant: the one that
// runs, also at another relay, or has ended unseen, else a new one.
func (o opener) open(ctx context.Context, grant *jws.Grant, token string, session protocol.SessionID, r request) (found, error) {
	shell := r.shell()
	if err := shell.Check(); err != nil {
		return found{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	one := &opening{opener: o, ctx: ctx, grant: grant, token: token, create: &op.PTYCreate{Shell: shell, OnDetach: keepFor}}
	one.create.Cols, one.create.Rows = r.size()
	one.key = hub.Key{Sandbox: grant.Sandbox, Session: session, PTY: shell.PTYID(session)}
	return one.find(bool(r.ForceRestart) || signsIn(shell.InitialCommand))
}

// find opens the shell that is there, if that will do, else a new one.
func (o *opening) find(anew bool) (found, error) {
	before, err := o.join()
	switch {
	case protocol.KindOf(err) == protocol.KindNotFound:
		return o.start(initStarted)
	case err != nil:
		return found{}, err
	case !anew && !before.Ended():
		return found{before, initJoined}, nil
	}
	got, err := o.replace(before, anew)
	switch {
	case err == nil:
		return got, nil
	case anew && protocol.KindOf(err) != protocol.KindConflict && protocol.KindOf(err) != protocol.KindForbidden:
		return found{}, err
	}
	// Nobody has seen how it ended, as the sandbox alone knows, and counts as seen
	// what is shown on a stream from now on; or somebody else has replaced it; or who
	// asks may only look.
	if protocol.KindOf(err) != protocol.KindForbidden || before.Ended() {
		before.Retire()
	}
	return o.joined(initJoined)
}

// replace starts a shell in place of another one, which has ended or is closed.
func (o *opening) replace(before *hub.Handle, closes bool) (found, error) {
	defer before.Release()
	if closes {
		if err := o.close(); err != nil {
			return found{}, err
		}
	}
	if err := o.run(op.KindPTYCreate, o.create); err != nil {
		return found{}, err
	}
	before.Retire() // it may not have heard of the end yet
	return o.joined(initReplaced)
}

// start starts a shell, unless somebody else just has.
func (o *opening) start(outcome string) (found, error) {
	err := o.run(op.KindPTYCreate, o.create)
	if err == nil {
		return o.joined(outcome)
	}
	// Somebody may have been faster, or the answer was lost.
	if kind := protocol.KindOf(err); kind != protocol.KindConflict && kind != protocol.KindUnknown {
		return found{}, err
	}
	got, joinErr := o.joined(initJoined)
	if protocol.KindOf(joinErr) == protocol.KindNotFound {
		return found{}, err
	}
	return got, joinErr
}

// close closes the shell that is there.
func (o *opening) close() error {
	err := o.run(op.KindPTYClose, nil)
	if protocol.KindOf(err) == protocol.KindNotFound {
		return nil
	}
	return err
}

// join opens the shell that is there.
func (o *opening) join() (*hub.Handle, error) {
	return o.hubs.Open(o.ctx, o.key, o.grant, o.token)
}

func (o *opening) joined(outcome string) (found, error) {
	handle, err := o.join()
	return found{handle, outcome}, err
}

// run has an operation on the shell signed and carried out.
func (o *opening) run(kind string, body op.Body) error {
	env, err := o.signer.Sign(o.ctx, dispatch.SignRequest{
		Grant: o.token, Op: op.Op{Kind: kind, Body: body}, IdempotencyKey: rand.Text(),
		Target: protocol.CommandTarget{SandboxID: o.key.Sandbox, SessionID: o.key.Session, PTYID: o.key.PTY},
	})
	if err == nil {
		_, err = o.dispatcher.Run(o.ctx, env)
	}
	return err
}
