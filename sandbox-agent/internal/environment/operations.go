package environment

import (
	"context"
	"crypto/ecdh"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/envseal"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/sandbox-agent/internal/feature"
)

// minShown is the length from which on a value is looked for in an error: a
// shorter one stands in most sentences.
const minShown = 4

// An Applier holds the variables and secrets of sessions.
type Applier interface {
	// ApplyEnv sets and unsets variables of a session or, unless pty is empty,
	// of one terminal of it; now: in running shells, too. It fails with
	// KindNotFound for a terminal that isn't there.
	ApplyEnv(ctx context.Context, session protocol.SessionID, pty protocol.PTYID, values protocol.EnvValues, unset []string, now bool) error
}

// A DeviceSeal opens what is sealed to a sandbox's device key.
type DeviceSeal struct {
	Key     *ecdh.PrivateKey
	Sandbox protocol.SandboxID
}

// Open implements [Seal].
func (s DeviceSeal) Open(box []byte) (protocol.EnvValues, error) {
	return envseal.Open[protocol.EnvValues](s.Key, envseal.Env, s.Sandbox, box)
}

// Operations implements [feature.Operator].
func (s *Store) Operations() feature.Operations { return Operations(s, s.opts.Seal) }

// ApplyEnv implements [Applier].
func (s *Store) ApplyEnv(_ context.Context, session protocol.SessionID, pty protocol.PTYID, values protocol.EnvValues, unset []string, now bool) error {
	if pty != "" {
		if _, ok := s.opts.Terminals.UID(session, pty); !ok {
			return protocol.Errorf(protocol.KindNotFound, "no such terminal")
		}
	}
	return s.Apply(session, pty, values, unset, now)
}

// Operations are those on variables and secrets.
func Operations(to Applier, seal Seal) feature.Operations {
	return feature.Operations{op.KindEnvApply: func(c *jws.Command, body op.Body) (feature.Run, error) {
		return prepare(to, seal, c, body.(*op.EnvSealed))
	}}
}

// prepare opens the values at once: a box that holds something else than the
// command says is refused before anything is stored.
func prepare(to Applier, seal Seal, c *jws.Command, sealed *op.EnvSealed) (feature.Run, error) {
	values, err := seal.Open(sealed.Sealed)
	if err != nil {
		return nil, protocol.Errorf(protocol.KindInvalid, "the values can't be opened: they must be sealed to this sandbox's key")
	}
	if err := checkSealed(sealed, values); err != nil {
		return nil, concealed(err, values)
	}
	return func(ctx context.Context) (protocol.OpResult, error) {
		err := to.ApplyEnv(ctx, c.Target.SessionID, c.Target.PTYID, values, sealed.Unset, sealed.ApplyNow)
		return feature.Done(c), concealed(err, values)
	}, nil
}

// checkSealed reports what is wrong with values, or with the names under which
// they were signed.
func checkSealed(sealed *op.EnvSealed, values protocol.EnvValues) error {
	asked := op.EnvApply{
		Set: values.Set, Secrets: values.Secrets, ApprovedDomains: values.ApprovedDomains,
		Unset: sealed.Unset, ApplyNow: sealed.ApplyNow,
	}
	if err := asked.Check(); err != nil {
		return err
	}
	inside := slices.AppendSeq(slices.Collect(maps.Keys(values.Set)), maps.Keys(values.Secrets))
	slices.Sort(inside)
	if !slices.Equal(inside, slices.Sorted(slices.Values(sealed.Names))) {
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
