package cookiefile

import (
	"context"
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/deploy/program/cookieform"
)

// A Platform says how browsers of an operating system keep their values.
type Platform struct {
	// known is the password of v10, which isn't a secret; empty: there it is the
	// keyring's.
	known  string
	rounds int // of PBKDF2
}

// Platforms by Go's names of the operating systems.
var (
	Linux  = Platform{known: cookieform.KnownPassword, rounds: cookieform.LinuxRounds}
	Darwin = Platform{rounds: cookieform.DarwinRounds}
)

// A Keyring has the password that the browser keeps with the person. It is asked at
// most once for a Read, and only if a value needs it.
type Keyring interface {
	Password(context.Context) (string, error)
}

// Why a value can't be read.
var (
	errKey    = errors.New("its key isn't the one that the browser uses now")
	errPortal = errors.New("its key is in the desktop's portal, which only the browser may ask")
	errTag    = errors.New("it is encrypted in a way that isn't known")
)

// A decrypter reads the values of one file.
type decrypter struct {
	platform Platform
	keyring  Keyring
	schema   int

	// What was asked for so far.
	asked    bool
	fromRing []cookieform.Key
	why      error
	known    []cookieform.Key
}

// value returns what a cookie's encrypted value says.
func (d *decrypter) value(ctx context.Context, host string, sealed []byte) (string, error) {
	if len(sealed) == 0 {
		return "", nil
	}
	if len(sealed) < cookieform.TagBytes {
		return "", errTag
	}
	var keys []cookieform.Key
	switch tag := string(sealed[:cookieform.TagBytes]); {
	case tag == cookieform.KnownTag && d.platform.known != "":
		if d.known == nil {
			d.known = d.platform.keys(d.platform.known)
		}
		keys = d.known
	case tag == cookieform.KnownTag || tag == "v11":
		if keys = d.ring(ctx); keys == nil {
			return "", d.why
		}
	case tag == "v12":
		return "", errPortal
	default:
		return "", errTag
	}
	for _, key := range keys {
		if plain, ok := key.Open(d.schema, host, sealed[cookieform.TagBytes:]); ok {
			return plain, nil
		}
	}
	return "", errKey
}

// ring returns the keys that the keyring's password makes.
func (d *decrypter) ring(ctx context.Context) []cookieform.Key {
	if d.asked {
		return d.fromRing
	}
	d.asked = true
	if d.keyring == nil {
		d.why = errors.New("its key is in a keyring, and none was asked")
		return nil
	}
	password, err := d.keyring.Password(ctx)
	if err != nil {
		d.why = fmt.Errorf("its key is in the keyring: %w", err)
		return nil
	}
	d.fromRing = d.platform.keys(password)
	return d.fromRing
}

// keys returns the key of a password, and that of none: for a time Chromium used the
// latter where it couldn't reach a keyring, and tries it still.
func (p Platform) keys(password string) []cookieform.Key {
	return []cookieform.Key{cookieform.NewKey(password, p.rounds), cookieform.NewKey("", p.rounds)}
}
