package signing

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/keyring"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/store"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/envseal"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

// Sandboxes have device keys.
type Sandboxes interface {
	Sandbox(ctx context.Context, id protocol.SandboxID) (store.Sandbox, error)
}

// seal puts, in the place of the values of an env.apply, a box that the
// sandbox's device key alone opens: from here on they are in nothing that is
// signed, stored or sent. It returns how many bytes they take in the box. Every
// other operation stays as it is, and takes 0.
//
// KindUnavailable says that no key of the sandbox is known.
func seal(ctx context.Context, known Sandboxes, o *Operation) (values int, err error) {
	if o.Kind != op.KindEnvApply {
		return 0, nil
	}
	var asked op.EnvApply
	if err := json.Unmarshal(o.Op, &asked); err != nil { // Parse wrote it
		return 0, protocol.Fault(protocol.KindInternal, err)
	}
	sandbox, err := known.Sandbox(ctx, o.Target.SandboxID)
	if err != nil {
		return 0, err
	}
	if len(sandbox.DeviceJWK) == 0 {
		return 0, protocol.Errorf(protocol.KindUnavailable,
			"sandbox %s is not enrolled, and values are sealed to the key of one that is", sandbox.ID)
	}
	key, err := device.Parse(sandbox.DeviceJWK)
	if err != nil {
		return 0, err
	}
	public, err := key.Public.ECDH()
	if err != nil {
		return 0, err
	}
	inside := protocol.EnvValues{Set: asked.Set, Secrets: asked.Secrets, ApprovedDomains: asked.ApprovedDomains}
	plain, err := json.Marshal(inside)
	if err != nil {
		return 0, err
	}
	signed := op.EnvSealed{Names: slices.Sorted(maps.Keys(asked.Set)), Unset: asked.Unset, ApplyNow: asked.ApplyNow}
	signed.Names = slices.AppendSeq(signed.Names, maps.Keys(asked.Secrets))
	slices.Sort(signed.Names)
	if signed.Sealed, err = envseal.Seal(public, sandbox.ID, inside); err != nil {
		return 0, err
	}
	o.Op, err = json.Marshal(op.Op{Kind: o.Kind, Body: &signed})
	return len(plain), err
}

// signSealed signs c, in which so many bytes of values are sealed. When they are
// too many it says how many there could be: what a caller knows of is neither a
// box nor a token.
func signSealed(keys *keyring.Ring, c jws.Command, values int) (string, error) {
	token, err := keys.Signer().SignCommand(c)
	if err == nil || values == 0 || protocol.KindOf(err) != protocol.KindTooLarge {
		return token, err
	}
	var sealed op.EnvSealed
	if e := json.Unmarshal(c.Op, &sealed); e != nil {
		return "", e
	}
	overhead := len(sealed.Sealed) - values
	sealed.Sealed = nil
	if c.Op, err = json.Marshal(op.Op{Kind: c.Kind(), Body: &sealed}); err != nil {
		return "", err
	}
	room := 0
	if empty, e := keys.Signer().SignCommand(c); e == nil {
		// The box is base64 in the op, which is base64 in the token; each may
		// round up.
		room = max(0, ((protocol.MaxTokenBytes-len(empty))*3/4-4)*3/4-4-overhead)
	}
	return "", protocol.Errorf(protocol.KindTooLarge,
		"the values take %d bytes as JSON, beside these names %d are allowed: set them in several steps", values, room)
}
