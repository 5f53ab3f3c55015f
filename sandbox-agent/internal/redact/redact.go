package redact

import (
	"errors"
	"fmt"
	"strings"
)

const (
	// MinSecretBytes is the least number of bytes of a secret, without controls and
	// characters without width.
	MinSecretBytes = 8
	// HoldFrom is the number of bytes of a secret from which on its beginning is
	// held, in whatever form.
	HoldFrom = 4
	// MaxSecrets is the greatest number of secrets in a Set.
	MaxSecrets = 10000
	// MaxSetBytes is the greatest number of bytes of all secrets of a Set. The
	// memory a Set takes is 100 to 150 times that of its secrets.
	MaxSetBytes = 2 << 20
)

var (
	// ErrTooShort is the error of Compile for a secret that is blank or has fewer
	// than MinSecretBytes bytes that count.
	ErrTooShort = errors.New("too short to be masked")
	// ErrTooMany is the error of Compile for more than MaxSecrets secrets or
	// MaxSetBytes bytes.
	ErrTooMany = errors.New("too many secrets")
)

// A Set is secrets to be masked, in all encodings. A nil Set is empty. A Set is
// immutable, and safe for concurrent use.
type Set struct {
	index *index // nil if the set is empty
}

// A Span is the bytes [From, To) of a text.
type Span struct{ From, To int }

// Compile returns the set of the secrets, of which some may be equal. Its error
// names a secret by its index only.
func Compile(secrets []string) (*Set, error) {
	if len(secrets) > MaxSecrets {
		return nil, fmt.Errorf("%w: %d of at most %d", ErrTooMany, len(secrets), MaxSecrets)
	}
	size := 0
	for i, s := range secrets {
		if !maskable(s) {
			return nil, fmt.Errorf("secret %d: %w", i, ErrTooShort)
		}
		if size += len(s); size > MaxSetBytes {
			return nil, fmt.Errorf("%w: more than %d bytes", ErrTooMany, MaxSetBytes)
		}
	}
	if len(secrets) == 0 {
		return &Set{}, nil
	}
	perByte := 80 // enough for nearly all
	if special([]byte(strings.Join(secrets, "")), unreserved) {
		perByte = 92
	}
	var (
		e        encoder
		arena    = make([]byte, 0, perByte*size)
		patterns = make([]pattern, 0, 48*len(secrets))
	)
	for _, s := range secrets {
		e.encode([]byte(s))
		for _, form := range e.forms {
			patterns = append(patterns, pattern{uint32(len(arena)), uint32(len(form.text)), form.hold})
			arena = append(arena, form.text...)
		}
	}
	return &Set{newIndex(arena, patterns)}, nil
}

// maskable reports whether a terminal shows enough of a secret.
func maskable(secret string) bool {
	shown := visible(nil, []byte(secret))
	for _, c := range shown {
		if c != ' ' {
			return len(shown) >= MinSecretBytes
		}
	}
	return false
}

// Empty reports whether s masks nothing.
func (s *Set) Empty() bool { return s == nil || s.index == nil }

// MaxBytes returns the length in bytes of the longest form of a secret, without
// controls.
func (s *Set) MaxBytes() int {
	if s.Empty() {
		return 0
	}
	return s.index.longest
}
