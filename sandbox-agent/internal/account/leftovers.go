package account

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process"
)

// ClearLeftovers ends processes that a killed agent has left, and removes the
// homes that it left in this one's: nobody watches, records, masks or confines
// them any more, and the uids are to be reused. It touches only uids that an
// agent of this machine has used and none uses now, and only homes that
// makeHome made. Kept homes stay, and are kept from everybody.
func (as *Pool) ClearLeftovers(log *slog.Logger) {
	if as.Own {
		as.endLeftovers(log)
		as.clearNames(log)
	}
	as.clearKept(log)
	entries, err := os.ReadDir(as.Homes)
	if err != nil {
		log.Warn("homes of an earlier life can't be looked for", "err", err)
	}
	for _, entry := range entries {
		if !entry.IsDir() || !protocol.ValidID(entry.Name()) {
			continue
		}
		if err := as.clearHome(entry); err != nil {
			log.Warn("a home of an earlier life can't be removed", "pty", entry.Name(), "err", err)
		}
	}
}

// endLeftovers kills all processes of a dead agent's uids.
func (as *Pool) endLeftovers(log *slog.Logger) {
	names, err := os.ReadDir(Locks)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("processes of an earlier life can't be looked for", "err", err)
		}
		return
	}
	busy := running() // listed once: most uids have no processes
	for _, name := range names {
		uid, err := strconv.Atoi(name.Name())
		if err != nil || !as.Has(uid) || !busy[uid] {
			continue
		}
		err = whileUnused(uid, func() error {
			n := killAll(func(sig syscall.Signal) int {
				return process.Signal(sig, func(s process.Stat) bool { return s.UID == uid })
			})
			if n > 0 {
				log.Warn("processes of an earlier life were ended", "uid", uid, "processes", n)
			}
			return nil
		})
		if err != nil {
			log.Warn("processes of an earlier life can't be ended", "uid", uid, "err", err)
		}
	}
}

// clearHome removes a leftover home. If it belongs to the agent's own user,
// perhaps another agent's, it removes only the values in it.
func (as *Pool) clearHome(entry fs.DirEntry) error {
	home := filepath.Join(as.Homes, entry.Name())
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if st, err := os.Lstat(filepath.Join(home, Dir)); err != nil || !st.IsDir() {
		return nil // makeHome didn't make it
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	switch {
	case as.Has(owner):
		return whileUnused(owner, func() error { return os.RemoveAll(home) })
	case !as.Own && owner == os.Geteuid():
		root, err := os.OpenRoot(home)
		if err != nil {
			return err
		}
		defer root.Close()
		var errs []error
		for _, name := range []string{EnvFile, CredentialsFile} {
			if err := root.Remove(filepath.Join(Dir, name)); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	}
	return nil
}
