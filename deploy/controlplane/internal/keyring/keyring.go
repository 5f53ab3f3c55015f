// Package keyring keeps the control plane's signing keys in a directory, and
// knows at any moment which one signs and which are still believed.
//
// A key is published before it signs, signs until the next one does, and is
// published on until nothing that it signed can be valid any more. The private
// half is deleted as soon as its time to sign is over. One index file says all
// that, and every process that uses the directory follows it.
package keyring

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/private"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

const (
	// Prepublish is how long a new key is published before it signs, unless
	// the caller says otherwise: relays and agents refresh their sets within
	// 20 s, and on a miss at most every 30 s.
	Prepublish = 60 * time.Second
	// Overlap is how long a key is believed after its last signature: the
	// longest life of a grant or command, and two clocks that differ.
	Overlap = max(protocol.MaxGrantTTL, protocol.MaxCommandTTL) + 2*protocol.ClockSkew
	// legacyCertificates is how long a certificate may live that was signed
	// before there was an index to note it in.
	legacyCertificates = 90 * 24 * time.Hour
	// certificateStep rounds the noted end of certificates up, so that signing
	// one rarely writes a file.
	certificateStep = time.Hour
	// revokedKept is how long a revoked key stays in the list.
	revokedKept = 365 * 24 * time.Hour
	// MaxKeys bounds the keys that are in use at a time.
	MaxKeys = 16
)

// A Use is what a key is for at a moment.
type Use string

const (
	UseNext    Use = "next"    // published, signs later
	UseSign    Use = "sign"    // signs
	UseVerify  Use = "verify"  // signs no more, what it signed is still valid
	UseRetired Use = "retired" // nothing that it signed is valid any more
	UseRevoked Use = "revoked" // taken back
)

// A Key is one signing key as the index has it.
type Key struct {
	Kid   string
	Use   Use
	Made  time.Time
	Since time.Time // when it began to sign, or will
	Until time.Time // verify: the end of its life; revoked: when that happened; else zero
	File  string    // of its private half; empty: deleted
}

// Options say how a Ring runs.
type Options struct {
	Now     func() time.Time   // nil: time.Now
	Logger  *slog.Logger       // nil: none
	Revoked *jws.RevocationSet // what Keys refuses; nil: nothing
}

// A Ring is a directory of keys in use. It is safe for concurrent use, also of
// several processes: each call sees what any of them wrote.
type Ring struct {
	// Static after construction.
	dir  string
	opts Options

	mu sync.Mutex
	// Guarded by mu.
	read     fs.FileInfo // the index file that index was read from
	index    index
	signers  map[string]*jws.Signer // private halves, by kid
	view     *view
	reported time.Time // when a failure to read was logged last
}

// A view is what the keys come to until some moment.
type view struct {
	signer *jws.Signer
	jwks   []byte
	keys   *jws.Keys
	until  time.Time // zero: until the index changes
}

// Dir returns the directory of the keys in a state directory.
func Dir(stateDir string) string { return filepath.Join(stateDir, "keys") }

// OpenIn opens the keys in a state directory. It makes both where there are none.
func OpenIn(stateDir string, opts Options) (*Ring, error) {
	if err := private.MakeDir(stateDir); err != nil {
		return nil, err
	}
	if err := private.MakeDir(Dir(stateDir)); err != nil {
		return nil, err
	}
	return Open(Dir(stateDir), opts)
}

// Open opens the ring in dir, which must exist. It makes the first key when
// there is none. Errors name the file that is at fault.
func Open(dir string, opts Options) (*Ring, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Ring{dir: dir, opts: opts}
	if err := private.Check(dir); err != nil {
		return nil, err
	}
	err := r.change(func(x *index, now time.Time) error {
		if len(x.live(now)) > 0 {
			return nil
		}
		return x.make(dir, now, now)
	})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.load(); err != nil {
		return nil, err
	}
	r.view, err = r.viewAt(opts.Now())
	return r, err
}

// List returns the keys in dir in the order in which they sign, without
// changing anything.
func List(dir string, now time.Time) ([]Key, error) {
	x, _, err := readIndex(dir, now)
	if err != nil {
		return nil, err
	}
	return x.list(now), nil
}

// Signer returns the key that signs now. Sign at once: it may be replaced.
func (r *Ring) Signer() *jws.Signer { return r.current().signer }

// JWKS returns the public keys that are believed now, as a JWK set.
func (r *Ring) JWKS() []byte { return r.current().jwks }

// Keys returns what verifies our own signatures now.
func (r *Ring) Keys() *jws.Keys { return r.current().keys }

// CertificateSigner returns the key that signs now, after noting that it
// certifies something until the given time: it is believed until then.
func (r *Ring) CertificateSigner(until time.Time) (*jws.Signer, error) {
	signer := r.Signer()
	if r.notes(signer.Kid(), until) {
		return signer, nil
	}
	var kid string
	err := r.change(func(x *index, now time.Time) error {
		e := x.signing(now)
		if e == nil {
			return errors.New("no key signs")
		}
		kid = e.Kid
		if until.After(e.CertificatesUntil) {
			e.CertificatesUntil = until.Truncate(certificateStep).Add(certificateStep).UTC()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if signer = r.Signer(); signer.Kid() != kid {
		return nil, protocol.Errorf(protocol.KindUnavailable, "the signing keys change at this moment")
	}
	return signer, nil
}

// notes reports whether the index says already that kid certifies until then.
func (r *Ring) notes(kid string, until time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.index.find(kid)
	return e != nil && e.RevokedAt.IsZero() && !until.After(e.CertificatesUntil)
}

// Rotate publishes a new key that signs after the given time; 0: at once, in
// which case a key that is published and doesn't sign yet is taken. KindConflict
// says that there is one.
func (r *Ring) Rotate(after time.Duration) (Key, error) {
	var kid string
	err := r.change(func(x *index, now time.Time) error {
		next := x.next(now)
		switch {
		case next != nil && after > 0:
			return protocol.Errorf(protocol.KindConflict, "key %s is published already and signs from %s",
				next.Kid, next.SignsFrom.Format(time.RFC3339))
		case next != nil:
			x.promote(next, now)
			kid = next.Kid
			return nil
		}
		err := x.make(r.dir, now, now.Add(after))
		if err == nil {
			kid = x.Keys[len(x.Keys)-1].Kid
		}
		return err
	})
	if err != nil {
		return Key{}, err
	}
	return r.key(kid)
}

// Revoke takes a key back: it is believed no more, at once. If it was the one
// that signs, the next one does from now on, or a new one where there is none.
// The only key is taken back with replace alone, else it is KindConflict;
// KindNotFound says that there is no such key. It returns the key that signs.
func (r *Ring) Revoke(kid string, replace bool) (Key, error) {
	var signs string
	err := r.change(func(x *index, now time.Time) error {
		e := x.find(kid)
		if e == nil {
			return protocol.Errorf(protocol.KindNotFound, "no key %s", kid)
		}
		if e.RevokedAt.IsZero() {
			if len(x.live(now)) == 1 && e.use(x, now) == UseSign && !replace {
				return protocol.Errorf(protocol.KindConflict, "key %s is the only one", kid)
			}
			if err := x.revoke(r.dir, e, now); err != nil {
				return err
			}
		}
		signs = x.signing(now).Kid
		return nil
	})
	if err != nil {
		return Key{}, err
	}
	return r.key(signs)
}

// Tidy forgets what the index no longer needs and deletes private halves whose
// time to sign is over.
func (r *Ring) Tidy() error {
	return r.change(func(*index, time.Time) error { return nil })
}

// Run tidies up every minute until ctx ends.
func (r *Ring) Run(ctx context.Context) {
	ticker := time.NewTicker(time.Minute)
	defer ticker.Stop()
	for {
		if err := r.Tidy(); err != nil {
			r.opts.Logger.Error("signing keys can't be tidied up", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (r *Ring) key(kid string) (Key, error) {
	keys, err := List(r.dir, r.opts.Now())
	for _, key := range keys {
		if key.Kid == kid {
			return key, err
		}
	}
	return Key{}, errors.Join(err, fmt.Errorf("key %s is gone again", kid))
}

// current returns the view of this moment. When the index can't be read, the
// last one holds on: what is wrong is logged.
func (r *Ring) current() *view {
	now := r.opts.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.follow(now)
	if err != nil && now.Sub(r.reported).Abs() >= time.Minute {
		r.reported = now
		r.opts.Logger.Error("signing keys can't be read", "error", err)
	}
	return r.view
}

// follow brings view up to date. Called with mu held.
func (r *Ring) follow(now time.Time) error {
	info, err := os.Stat(filepath.Join(r.dir, indexFile))
	if err != nil {
		return err
	}
	same := os.SameFile(info, r.read) && info.ModTime().Equal(r.read.ModTime()) && info.Size() == r.read.Size()
	if same && (r.view.until.IsZero() || now.Before(r.view.until)) {
		return nil
	}
	if !same {
		if err := r.load(); err != nil {
			return err
		}
	}
	view, err := r.viewAt(now)
	if err == nil {
		r.view = view
	}
	return err
}

// load reads the index and the private halves that are needed now or later.
// Called with mu held.
func (r *Ring) load() error {
	now := r.opts.Now()
	x, info, err := readIndex(r.dir, now)
	if err != nil {
		return err
	}
	signers := make(map[string]*jws.Signer)
	for _, e := range x.live(now) {
		if use := e.use(&x, now); use != UseSign && use != UseNext {
			continue
		}
		signer, err := readKey(filepath.Join(r.dir, e.File))
		if err != nil {
			return err
		}
		if signer.Kid() != e.Kid {
			return fmt.Errorf("signing key %s: holds key %s, the index says %s", e.File, signer.Kid(), e.Kid)
		}
		signers[e.Kid] = signer
	}
	r.read, r.index, r.signers = info, x, signers
	return nil
}

// viewAt computes the view of now. Called with mu held.
func (r *Ring) viewAt(now time.Time) (*view, error) {
	signing := r.index.signing(now)
	if signing == nil {
		return nil, fmt.Errorf("%s: no key signs", filepath.Join(r.dir, indexFile))
	}
	v := &view{signer: r.signers[signing.Kid], until: r.index.nextChange(now)}
	if v.signer == nil {
		return nil, fmt.Errorf("signing key %s: its private half is gone", signing.Kid)
	}
	var err error
	if v.jwks, err = r.index.jwks(now); err != nil {
		return nil, err
	}
	set, err := jws.ParseKeySet(v.jwks)
	if err != nil {
		return nil, err
	}
	v.keys = jws.NewKeys(set, jws.KeysOptions{Now: r.opts.Now, Revoked: r.opts.Revoked})
	return v, nil
}

// change lets f change the index while no other process does, and tidies up.
func (r *Ring) change(f func(x *index, now time.Time) error) error {
	unlock, err := lockDir(r.dir)
	if err != nil {
		return err
	}
	defer unlock()
	now := r.opts.Now().UTC()
	x, info, err := readIndex(r.dir, now)
	if err != nil {
		return err
	}
	before, err := x.encode()
	if err != nil {
		return err
	}
	if err := f(&x, now); err != nil {
		return err
	}
	files := x.tidy(now)
	after, err := x.encode()
	if err != nil {
		return err
	}
	if info == nil || string(after) != string(before) {
		if err := writeIndex(r.dir, after); err != nil {
			return err
		}
	}
	return removeKeys(r.dir, files)
}
