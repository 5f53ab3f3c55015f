package account

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/passwd"
)

const (
	// gitConfig is git's file in a home, which its user may change.
	gitConfig = ".gitconfig"
	// nowhere is the domain of made-up e-mail addresses for terminals. Nothing is
	// ever delivered there.
	nowhere = "@fairlead.invalid"
	// maxGitName bounds a committer's name, in characters.
	maxGitName = 128
)

// named adds a's user to the list of users, if there is one. A terminal works
// without, so errors are only logged.
func (as *Pool) named(a Account) {
	if as.Users == nil || a.UID < 0 {
		return
	}
	if err := as.Users.Set(passwd.Entry{UID: a.UID, GID: a.GID, Home: a.Home, Shell: as.Shell}); err != nil {
		as.Log.Warn("a terminal's user has no name", "uid", a.UID, "err", err)
	}
}

// unnamed removes a's entry.
func (as *Pool) unnamed(a Account) {
	if as.Users == nil || a.UID < 0 {
		return
	}
	if err := as.Users.Remove(a.UID); err != nil {
		as.Log.Warn("the name of a terminal's user stays", "uid", a.UID, "err", err)
	}
}

// clearNames removes the entries that a killed agent has left.
func (as *Pool) clearNames(log *slog.Logger) {
	if as.Users == nil {
		return
	}
	uids, err := as.Users.UIDs()
	if err == nil && len(uids) > 0 {
		err = os.MkdirAll(Locks, 0o700)
	}
	if err != nil {
		log.Warn("users of an earlier life can't be looked for", "err", err)
		return
	}
	for _, uid := range uids {
		if !as.Has(uid) {
			continue
		}
		if err := whileUnused(uid, func() error { return as.Users.Remove(uid) }); err != nil {
			log.Warn("a user of an earlier life stays", "uid", uid, "err", err)
		}
	}
}

// Introduce tells git in a's home who the terminal's creator is, if known.
func (a Account) Introduce(id protocol.UserID, name string) error {
	text := gitIdentity(id, name)
	if text == "" {
		return nil
	}
	path := filepath.Join(a.Home, gitConfig)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fmt.Errorf("git's settings: %w", err)
	}
	return chown(path, a)
}

// gitIdentity returns settings of git for a person, "" for nobody.
func gitIdentity(id protocol.UserID, name string) string {
	name = strings.Join(strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || unicode.IsSpace(r) }), " ")
	name = strings.ToValidUTF8(name, "")
	if runes := []rune(name); len(runes) > maxGitName {
		name = string(runes[:maxGitName])
	}
	if name == "" {
		name = string(id)
	}
	if !protocol.ValidID(id) {
		return ""
	}
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name)
	return fmt.Sprintf("[user]\n\tname = \"%s\"\n\temail = %s\n", quoted, string(id)+nowhere)
}

// whileUnused calls fn unless an agent uses uid, and reserves uid meanwhile.
func whileUnused(uid int, fn func() error) error {
	lock, err := LockUID(uid)
	if lock == nil || err != nil {
		return err
	}
	return errors.Join(fn(), lock.Close())
}
