package store

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/deploy/controlplane/internal/store/db"
	"github.com/fairlead/fairlead/protocol"
)

// How many rows a list has at most.
const (
	DefaultLimit = 100  // where the caller says 0
	MaxLimit     = 1000 // however much is asked for
)

func limited(n int) int {
	if n <= 0 {
		return DefaultLimit
	}
	return min(n, MaxLimit)
}

// maxTextBytes bounds names and labels.
const maxTextBytes = 256

// checkText refuses a text that people gave and that can't be kept or shown.
func checkText(what, s string) error {
	if len(s) > maxTextBytes || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return protocol.Errorf(protocol.KindInvalid, "%s is longer than %d bytes or holds control characters", what, maxTextBytes)
	}
	return nil
}

// checkID refuses what isn't an id.
func checkID[T ~string](what string, id T) error {
	if !protocol.ValidID(id) {
		return protocol.Errorf(protocol.KindInvalid, "%s is not an id", what)
	}
	return nil
}

// normalCapabilities returns caps, separated by spaces, each once and in the
// order of [protocol.Capabilities].
func normalCapabilities(caps string) (string, error) {
	var found []string
	fields := strings.Fields(caps)
	for _, f := range fields {
		if !protocol.Capability(f).Known() {
			return "", protocol.Errorf(protocol.KindInvalid, "unknown capability %q", db.CleanText(f))
		}
	}
	for _, c := range protocol.Capabilities {
		if slices.Contains(fields, string(c)) {
			found = append(found, string(c))
		}
	}
	return strings.Join(found, " "), nil
}

// absent turns sql.ErrNoRows into a KindNotFound that names what is missing.
func absent(err error, what string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return protocol.Errorf(protocol.KindNotFound, "no such %s", what)
	}
	return err
}

// hashToken returns what is kept of a secret. Secrets are random and long, so a
// plain digest doesn't help to guess them.
func hashToken(token string) []byte {
	h := sha256.Sum256([]byte(token))
	return h[:]
}
