package signing

import (
	"context"
	"crypto/ecdh"
	"encoding/json"

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

// seal puts, in the place of the values of an operation that has secret ones, a box
// that the sandbox's device key alone opens: from here on they are in nothing that
// is signed, stored or sent. It returns how many bytes they take in the box. Every
// other operation stays as it is, and takes 0.
//
// KindUnavailable says that no key of the sandbox is known.
func seal(ctx context.Context, known Sandboxes, o *Operation) (values int, err error) {
	if spec, _ := op.Lookup(o.Kind); !spec.Conceals() {
		return 0, nil
	}
	_, body, err := op.DecodeAsked(o.Op)
	if err != nil { // Parse wrote it
		return 0, protocol.Fault(protocol.KindInternal, err)
	}
	inside, signed := body.(op.Concealer).Conceal()
	var box []byte
	if inside != nil {
		if box, values, err = boxed(ctx, known, o, inside); err != nil {
			return 0, err
		}
	}
	o.Op, err = json.Marshal(op.Op{Kind: o.Kind, Body: signed(box)})
	return values, err
}

// purposes are those of the boxes in commands.
var purposes = map[string]envseal.Purpose{op.KindEnvApply: envseal.Env, op.KindSyncPair: envseal.Sync}

// boxed returns the box of the values inside for o's sandbox, and how many bytes
// they take in it.
func boxed(ctx context.Context, known Sandboxes, o *Operation, inside any) (box []byte, values int, err error) {
	public, err := deviceKey(ctx, known, o.Target.SandboxID)
	if err != nil {
		return nil, 0, err
	}
	plain, err := json.Marshal(inside)
	if err != nil {
		return nil, 0, err
	}
	box, err = envseal.Seal(public, purposes[o.Kind], o.Target.SandboxID, inside)
	return box, len(plain), err
}

// deviceKey returns what values are sealed to.
func deviceKey(ctx context.Context, known Sandboxes, id protocol.SandboxID) (*ecdh.PublicKey, error) {
	sandbox, err := known.Sandbox(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(sandbox.DeviceJWK) == 0 {
		return nil, protocol.Errorf(protocol.KindUnavailable,
			"sandbox %s is not enrolled, and values are sealed to the key of one that is", sandbox.ID)
	}
	key, err := device.Parse(sandbox.DeviceJWK)
	if err != nil {
		return nil, err
	}
	return key.Public.ECDH()
}

// signSealed signs c, in which so many bytes of values are sealed. When those of an
// env.apply are too many it says how many there could be: what a caller knows of is neither a
// box nor a token.
func signSealed(keys *keyring.Ring, c jws.Command, values int) (string, error) {
	token, err := keys.Signer().SignCommand(c)
	if err == nil || c.Kind() != op.KindEnvApply || protocol.KindOf(err) != protocol.KindTooLarge {
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
