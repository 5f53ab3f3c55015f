package source

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/program/sitepolicy"
	"github.com/fairlead/fairlead/deploy/source/internal/config"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

// A pairing is what the command line says of it.
type pairing struct {
	name, secret string
	all          bool
	sites        []string
	which        whose

	// Of another program that is to be paired.
	source, code string
	accept       bool
}

// exchange makes a key with the sandbox: its public key comes from the control plane,
// and so does its word that it has the same secret.
func (r *run) exchange(ctx context.Context, cp *controlPlane, id protocol.SessionID, name, host string, key *config.Key) (protocol.SyncResult, error) {
	return cp.pair(ctx, id, name, func(sink protocol.SyncResult) (*op.SyncPair, error) {
		private, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		code := seal.NewCode()
		paired, err := seal.Pair(private, sink.SinkPublicKey, code)
		if err != nil {
			return nil, err
		}
		key.Peer, key.Key, key.Fingerprint = sink.SinkHostname, paired[:], paired.Fingerprint()
		return &op.SyncPair{SourcePublicKey: private.PublicKey().Bytes(), SourceHostname: host, Fingerprint: key.Fingerprint, Code: string(code)}, nil
	})
}

// pair has the sandbox begin a pairing, and finishes it with what answer says to the
// sandbox's key. What fails between is ended there: it has room for few that wait.
func (p *controlPlane) pair(ctx context.Context, id protocol.SessionID, name string, answer func(sink protocol.SyncResult) (*op.SyncPair, error)) (protocol.SyncResult, error) {
	begun, err := p.run(ctx, id, op.KindSyncPair, &op.SyncPair{Step: op.SyncBegin, Name: name})
	if err != nil {
		return protocol.SyncResult{}, err
	}
	sink := syncOf(begun)
	made, err := p.finish(ctx, id, sink, answer)
	if err != nil {
		// Where that fails, too, the sandbox has ended it, or will soon.
		_ = p.unpair(context.WithoutCancel(ctx), id, sink.Pairing)
		return protocol.SyncResult{}, err
	}
	return made, nil
}

func (p *controlPlane) finish(ctx context.Context, id protocol.SessionID, sink protocol.SyncResult, answer func(sink protocol.SyncResult) (*op.SyncPair, error)) (made protocol.SyncResult, err error) {
	body, err := answer(sink)
	if err != nil {
		return made, err
	}
	body.Step, body.Pairing = op.SyncFinish, sink.Pairing
	finished, err := p.run(ctx, id, op.KindSyncPair, body)
	if err != nil {
		return made, err
	}
	if made = syncOf(finished); made.Fingerprint != body.Fingerprint {
		return made, fmt.Errorf("the sandbox says fingerprint %s, and here it is %s: somebody stands between", made.Fingerprint, body.Fingerprint)
	}
	made.SinkHostname = sink.SinkHostname
	return made, nil
}

// unpair ends a pairing, or one that wasn't finished.
func (p *controlPlane) unpair(ctx context.Context, id protocol.SessionID, pairing protocol.PairingID) error {
	_, err := p.run(ctx, id, op.KindSyncUnpair, &op.SyncUnpair{Pairing: pairing})
	return err
}

func syncOf(result protocol.OpResult) protocol.SyncResult {
	if result.SyncResult == nil {
		return protocol.SyncResult{}
	}
	return *result.SyncResult
}

// A start is the list that a pairing begins with.
type start struct {
	sitepolicy.File
	stays bool // it is the file that is there
}

// start returns what was named before and what the flags name, and no other site unless
// --all says so. A list of what isn't sent would let all others pass without a word, so
// that takes --all, too, which keeps the list.
func (r *run) start(p *pairing) (start, error) {
	before, err := r.dir.Policy()
	if err != nil {
		return start{}, err
	}
	_, err = os.Stat(r.dir.PolicyPath())
	there := err == nil
	blocks := there && !before.Allows()
	file := before
	switch {
	case p.all && blocks || there && before.Allows() && !p.all && len(p.sites) == 0:
		return start{before, true}, nil
	case p.all:
		return start{File: sitepolicy.File{Policy: "blocklist", Domains: []sitepolicy.Domain{}}}, nil
	case blocks && len(p.sites) == 0:
		return start{}, program.Hint(errors.New(sitepolicy.Name+" lets every site pass that isn't on it"),
			"fairlead-source pair --site github.com sends that site alone; pair --all sends every site that isn't on the list")
	case !before.Allows():
		file = sitepolicy.File{Policy: "allowlist", Domains: []sitepolicy.Domain{}}
	}
	for _, text := range p.sites {
		site, err := sitepolicy.Site(text)
		if err != nil {
			return start{}, err
		}
		file = file.Set(site, true, "")
	}
	return start{File: file}, nil
}
