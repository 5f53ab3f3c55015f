package controlplane

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/device"
	"github.com/fairlead/fairlead/deploy/controlplane/internal/private"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/envseal"
	"github.com/fairlead/fairlead/protocol/jws"
	"github.com/fairlead/fairlead/protocol/op"
)

// seal puts, in the place of the values of an env.apply, a box that the
// sandbox's device key alone opens: from here on they are in nothing that is
// signed, stored or sent. It returns how many bytes they take in the box. Every
// other operation stays as it is, and takes 0.
//
// KindUnavailable says that no key of the sandbox is known.
func (s *Server) seal(ctx context.Context, o *operation) (values int, err error) {
	if o.Kind != op.KindEnvApply {
		return 0, nil
	}
	var asked op.EnvApply
	if err := json.Unmarshal(o.Op, &asked); err != nil { // parseOperation wrote it
		return 0, protocol.Fault(protocol.KindInternal, err)
	}
	sandbox, err := s.store.Fleet.Sandbox(ctx, o.Target.SandboxID)
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
func (s *Server) signSealed(c jws.Command, values int) (string, error) {
	token, err := s.keys.Signer().SignCommand(c)
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
	if empty, e := s.keys.Signer().SignCommand(c); e == nil {
		// The box is base64 in the op, which is base64 in the token; each may
		// round up.
		room = max(0, ((protocol.MaxTokenBytes-len(empty))*3/4-4)*3/4-4-overhead)
	}
	return "", protocol.Errorf(protocol.KindTooLarge,
		"the values take %d bytes as JSON, beside these names %d are allowed: set them in several steps", values, room)
}

// requestKeyFile holds the key of the hashes by which a repeated env.apply is
// known again. Without it, whoever reads the database could try values out.
const (
	requestKeyFile  = "request.key"
	requestKeyBytes = 32
)

// openRequestKey reads the key, and makes it where there is none. Of several
// processes that make it at a time all get the same one.
func openRequestKey(path string) ([]byte, error) {
	key, err := private.Read(path, requestKeyBytes)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeRequestKey(path); err == nil {
			key, err = private.Read(path, requestKeyBytes)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("request key: %w", err)
	}
	if len(key) != requestKeyBytes {
		return nil, fmt.Errorf("request key %s: %d bytes, want %d", path, len(key), requestKeyBytes)
	}
	return key, nil
}

// makeRequestKey writes a new key unless there is one by now. The file is whole
// from the moment on at which it has its name.
func makeRequestKey(path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+requestKeyFile+"-*") // mode 0600
	if err != nil {
		return err
	}
	key := make([]byte, requestKeyBytes)
	if _, err = rand.Read(key); err == nil {
		_, err = f.Write(key)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	err = errors.Join(err, os.Remove(f.Name()))
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
