package executor

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// minShown is the length from which on a value is looked for in an error: a
// shorter one stands in most sentences.
const minShown = 4

// An Environment holds the variables and secrets of sessions.
type Environment interface {
	// ApplyEnv sets and unsets variables of a session or, unless pty is empty,
	// of one terminal of it; now: in running shells, too. It fails with
	// KindNotFound for a terminal that isn't there.
	ApplyEnv(ctx context.Context, session protocol.SessionID, pty protocol.PTYID, values protocol.EnvValues, unset []string, now bool) error
}

// parseEnv opens the values at once: a box that holds something else than the
// command says is refused before anything is stored.
func (x *Executor) parseEnv(command *jws.Command) (operation, error) {
	var op struct {
		plain
		protocol.EnvCommand
	}
	if err := decode(command, &op); err != nil {
		return nil, err
	}
	values, err := x.OpenEnv(op.Sealed)
	if err != nil {
		return nil, protocol.Errorf(protocol.KindInvalid, "the values can't be opened: they must be sealed to this sandbox's key")
	}
	if err := checkEnv(op.EnvCommand, values); err != nil {
		return nil, concealed(err, values)
	}
	session, pty := command.Target.SessionID, command.Target.PTYID
	return func(ctx context.Context) (protocol.OpResult, error) {
		err := x.Environment.ApplyEnv(ctx, session, pty, values, op.Unset, op.ApplyNow)
		return done(command), concealed(err, values)
	}, nil
}

// checkEnv reports what is wrong with values, or with the names under which
// they were signed.
func checkEnv(op protocol.EnvCommand, values protocol.EnvValues) error {
	asked := protocol.EnvApply{
		Set: values.Set, Secrets: values.Secrets, ApprovedDomains: values.ApprovedDomains, Unset: op.Unset, ApplyNow: op.ApplyNow,
	}
	if err := asked.Check(); err != nil {
		return err
	}
	sealed := slices.AppendSeq(slices.Collect(maps.Keys(values.Set)), maps.Keys(values.Secrets))
	slices.Sort(sealed)
	if !slices.Equal(sealed, slices.Sorted(slices.Values(op.Names))) {
		return protocol.Errorf(protocol.KindInvalid, "names: not those of the sealed values")
	}
	return nil
}

// concealed returns err, or one that says less where a value stands in its text
// or in that of its cause: errors are logged, and shown to whoever asked.
func concealed(err error, values protocol.EnvValues) error {
	if err == nil {
		return nil
	}
	e := protocol.AsError(err)
	text := err.Error() + "\n" + e.Error()
	if e.Err != nil {
		text += "\n" + e.Err.Error()
	}
	shown := func(value string) bool { return len(value) >= minShown && strings.Contains(text, value) }
	for _, value := range values.Set {
		if shown(value) {
			return protocol.Errorf(e.Kind, "the variables can't be set")
		}
	}
	for _, secret := range values.Secrets {
		if shown(secret.Value) {
			return protocol.Errorf(e.Kind, "the variables can't be set")
		}
	}
	return err
}
