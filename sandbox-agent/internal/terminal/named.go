package terminal

import (
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
	// nowhere ends the address of who has none that is told to terminals. Nothing
	// is ever delivered there.
	nowhere = "@fairlead.invalid"
	// maxGitName bounds the name under which somebody commits, in characters.
	maxGitName = 128
)

// named gives the user of a an entry in the list of users, where there is one. A
// terminal works without, so what fails is logged alone.
func (as *accounts) named(a account) {
	if as.users == nil || a.uid < 0 {
		return
	}
	if err := as.users.Set(passwd.Entry{UID: a.uid, GID: a.gid, Home: a.home, Shell: as.shell}); err != nil {
		as.log.Warn("a terminal's user has no name", "uid", a.uid, "err", err)
	}
}

// unnamed takes the entry of a away.
func (as *accounts) unnamed(a account) {
	if as.users == nil || a.uid < 0 {
		return
	}
	if err := as.users.Remove(a.uid); err != nil {
		as.log.Warn("the name of a terminal's user stays", "uid", a.uid, "err", err)
	}
}

// clearNames takes the entries away that an agent which was killed has left.
func (as *accounts) clearNames(log *slog.Logger) {
	if as.users == nil {
		return
	}
	uids, err := as.users.UIDs()
	if err == nil && len(uids) > 0 {
		err = os.MkdirAll(uidLocks, 0o700)
	}
	if err != nil {
		log.Warn("users of an earlier life can't be looked for", "err", err)
		return
	}
	for _, uid := range uids {
		if !as.has(uid) {
			continue
		}
		if err := whileUnused(uid, func() error { return as.users.Remove(uid) }); err != nil {
			log.Warn("a user of an earlier life stays", "uid", uid, "err", err)
		}
	}
}

// introduce tells git in a's home who a terminal's creator is, if that is known.
func introduce(a account, p protocol.PTYCreate) error {
	text := gitIdentity(p.CreatorID, p.CreatorName)
	if text == "" {
		return nil
	}
	path := filepath.Join(a.home, gitConfig)
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
