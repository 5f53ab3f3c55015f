package keyring

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/jws"
)

// An index says what every key is for. Entries are in the order in which they
// sign.
type index struct {
	Version int      `json:"version"`
	Keys    []*entry `json:"keys"`
}

const indexVersion = 1

// An entry is one key's life. It signs from SignsFrom until that of the next
// entry that isn't revoked.
type entry struct {
	Kid               string          `json:"kid"`
	JWK               json.RawMessage `json:"jwk"`            // public
	File              string          `json:"file,omitempty"` // of the private half, in the same directory
	Made              time.Time       `json:"made"`
	SignsFrom         time.Time       `json:"signs_from"`
	CertificatesUntil time.Time       `json:"certificates_until,omitzero"` // no certificate that it signed is valid for longer
	RevokedAt         time.Time       `json:"revoked_at,omitzero"`
}

func parseIndex(data []byte) (index, error) {
	var x index
	if err := protocol.UnmarshalStrict(data, &x); err != nil {
		return x, err
	}
	if x.Version != indexVersion {
		return x, fmt.Errorf("version %d; this build knows %d", x.Version, indexVersion)
	}
	for i, e := range x.Keys {
		switch {
		case e == nil || e.Kid == "" || e.SignsFrom.IsZero():
			return x, fmt.Errorf("entry %d has no kid or no time to sign from", i+1)
		case i > 0 && e.SignsFrom.Before(x.Keys[i-1].SignsFrom):
			return x, fmt.Errorf("entry %d signs before the one above it", i+1)
		case slices.ContainsFunc(x.Keys[:i], func(o *entry) bool { return o.Kid == e.Kid }):
			return x, fmt.Errorf("key %s is there twice", e.Kid)
		case e.File != "" && !keyFileName(e.File):
			return x, fmt.Errorf("entry %d: file is not the name of a key file", i+1)
		}
	}
	return x, nil
}

func (x *index) encode() ([]byte, error) {
	x.Version = indexVersion
	data, err := json.MarshalIndent(x, "", "  ")
	return append(data, '\n'), err
}

func (x *index) find(kid string) *entry {
	for _, e := range x.Keys {
		if e.Kid == kid {
			return e
		}
	}
	return nil
}

// live returns the entries whose keys are believed at now.
func (x *index) live(now time.Time) []*entry {
	var live []*entry
	for _, e := range x.Keys {
		if use := e.use(x, now); use != UseRevoked && use != UseRetired {
			live = append(live, e)
		}
	}
	return live
}

// signing returns the entry of the key that signs at now: the latest one whose
// time has come. A private half that was deleted never comes back, so that a
// clock that was set back changes nothing.
func (x *index) signing(now time.Time) *entry {
	var signs *entry
	for _, e := range x.Keys {
		if e.File != "" && e.RevokedAt.IsZero() && (signs == nil || !e.SignsFrom.After(now)) {
			signs = e
		}
	}
	return signs
}

// next returns the entry of the key that is to sign next; nil if none is.
func (x *index) next(now time.Time) *entry {
	signs := x.signing(now)
	if signs == nil {
		return nil
	}
	return x.successor(signs)
}

// promote lets e sign from the given time on. Those before it can't have begun
// later: if it looks so, the clock was set back.
func (x *index) promote(e *entry, from time.Time) {
	for _, o := range x.Keys[:slices.Index(x.Keys, e)+1] {
		if o == e || o.SignsFrom.After(from) {
			o.SignsFrom = from.UTC()
		}
	}
}

// successor returns the entry that takes e's place.
func (x *index) successor(e *entry) *entry {
	after := x.Keys[slices.Index(x.Keys, e)+1:]
	if i := slices.IndexFunc(after, func(o *entry) bool { return o.RevokedAt.IsZero() }); i >= 0 {
		return after[i]
	}
	return nil
}

// retires returns when the last thing that e signed has expired; zero while
// nothing is to take its place.
func (e *entry) retires(x *index) time.Time {
	s := x.successor(e)
	if s == nil {
		return time.Time{}
	}
	end := s.SignsFrom.Add(Overlap)
	if certificates := e.CertificatesUntil.Add(2 * protocol.ClockSkew); certificates.After(end) {
		end = certificates
	}
	return end
}

// use returns what e is for at now.
func (e *entry) use(x *index, now time.Time) Use {
	switch signs := x.signing(now); {
	case !e.RevokedAt.IsZero():
		return UseRevoked
	case signs == e:
		return UseSign
	case e.File != "" && slices.Index(x.Keys, e) > slices.Index(x.Keys, signs):
		return UseNext
	}
	if end := e.retires(x); !end.IsZero() && !end.After(now) {
		return UseRetired
	}
	return UseVerify
}

// nextChange returns the first moment after now at which some key's use
// changes; zero: none does by itself.
func (x *index) nextChange(now time.Time) time.Time {
	var first time.Time
	for _, e := range x.live(now) {
		for _, at := range []time.Time{e.SignsFrom, e.retires(x)} {
			if at.After(now) && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
	}
	return first
}

// jwks returns the public keys that are believed at now.
func (x *index) jwks(now time.Time) ([]byte, error) {
	set := struct {
		Keys []json.RawMessage `json:"keys"`
	}{}
	for _, e := range x.live(now) {
		set.Keys = append(set.Keys, e.JWK)
	}
	return json.Marshal(set)
}

// make adds a new key in dir that signs from the given time.
func (x *index) make(dir string, now, from time.Time) error {
	if len(x.live(now)) >= MaxKeys {
		return protocol.Errorf(protocol.KindTooMany, "%d keys are in use; wait until some are retired", MaxKeys)
	}
	file, signer, err := makeKey(dir, now)
	if err != nil {
		return err
	}
	e, err := newEntry(signer, file, now)
	if err != nil {
		return err
	}
	x.Keys = append(x.Keys, e)
	x.promote(e, from)
	return nil
}

// revoke takes e back at now, and lets another key sign if it was the one.
func (x *index) revoke(dir string, e *entry, now time.Time) error {
	use, next := e.use(x, now), x.next(now)
	e.RevokedAt = now.UTC()
	switch {
	case use != UseSign:
		return nil
	case next != nil:
		x.promote(next, now)
		return nil
	}
	return x.make(dir, now, now) // an older one's private half is gone
}

// tidy forgets the keys that are of no use any more, and returns the files of
// private halves that mustn't sign again.
func (x *index) tidy(now time.Time) (files []string) {
	var kept []*entry
	for _, e := range x.Keys {
		use := e.use(x, now)
		if use != UseSign && use != UseNext && e.File != "" {
			files = append(files, e.File)
			e.File = ""
		}
		if use != UseRetired && (use != UseRevoked || now.Sub(e.RevokedAt) <= revokedKept) {
			kept = append(kept, e)
		}
	}
	x.Keys = kept
	return files
}

func (x *index) list(now time.Time) []Key {
	var keys []Key
	for _, e := range x.Keys {
		key := Key{Kid: e.Kid, Use: e.use(x, now), Made: e.Made, Since: e.SignsFrom, File: e.File}
		switch key.Use {
		case UseVerify, UseRetired:
			key.Until = e.retires(x)
		case UseRevoked:
			key.Until = e.RevokedAt
		}
		keys = append(keys, key)
	}
	return keys
}

func newEntry(signer *jws.Signer, file string, made time.Time) (*entry, error) {
	data, err := jws.MarshalKeySet(signer)
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, err
	}
	if len(set.Keys) != 1 {
		return nil, errors.New("key set: want one key")
	}
	return &entry{Kid: signer.Kid(), JWK: set.Keys[0], File: file, Made: made.UTC().Truncate(time.Second)}, nil
}
