package terminal

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// In a home: what running shells read before their next prompt.
const (
	envDir  = ".fairlead"
	envFile = "env.sh"
)

// environ returns the whole environment of a program about to start in the
// terminal id, and how far it is kept to the egress proxy.
func (h *Host) environ(session protocol.SessionID, id protocol.PTYID, a account, create protocol.PTYCreate) ([]string, protocol.EgressState, error) {
	env := environment(h.config, session, id, a)
	if h.config.Credentials != nil {
		env = append(env, credentialVariables(h.config.Credentials(session, id))...)
	}
	if h.config.Environ == nil {
		return env, "", nil
	}
	more, egress, err := h.config.Environ(session, id, a.uid, create)
	if err != nil {
		return nil, "", err
	}
	return append(env, more...), egress, nil
}

// UID returns the uid of the terminal id of session, −1 where terminals run as
// the agent's own user. It is false when there is no such terminal or its uid is
// free again.
func (h *Host) UID(session protocol.SessionID, id protocol.PTYID) (uid int, ok bool) {
	t, err := h.Get(session, id)
	if err != nil || t.released() {
		return 0, false
	}
	return t.site.launched.account.uid, true
}

// A Running is a terminal that holds something of the system.
type Running struct {
	Session protocol.SessionID
	ID      protocol.PTYID
	UID     int // −1: the agent's own
	PID     int // of its program; 0 if it has none
}

// Running returns the terminals of all sessions that run, by id.
func (h *Host) Running() []Running {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []Running
	for id, t := range h.listed {
		if !t.released() {
			all = append(all, Running{Session: t.session, ID: id, UID: t.site.launched.account.uid, PID: t.own.proc.PID()})
		}
	}
	slices.SortFunc(all, func(a, b Running) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return all
}

// ApplyEnv has the running shells of the terminal id of session read script
// before their next prompt, with an empty id those of all its terminals. Of
// shells, bash and zsh do, when the start files of their home are in use; others
// read it when they start. Nothing is typed into the terminal, and nothing of it
// shown. It fails with KindNotFound when there is no such terminal, and with
// KindUnavailable when the script can't be written: then other terminals may
// have it.
func (h *Host) ApplyEnv(session protocol.SessionID, id protocol.PTYID, script []byte) error {
	ts := h.of(session)
	if id != "" {
		t, err := h.Get(session, id)
		if err != nil {
			return err
		}
		ts = []*Terminal{t}
	}
	script = append([]byte("# "+rand.Text()+"\n"), script...) // shells compare that line
	var errs []error
	for _, t := range ts {
		if t.released() {
			continue
		}
		if err := writePrivate(t.site.launched.account, envFile, script); err != nil && !t.hasEnded() {
			errs = append(errs, fmt.Errorf("terminal %s: %w", t.info.ID, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return protocol.Fault(protocol.KindUnavailable, err)
	}
	return nil
}

// writePrivate puts content into a file of a's folder of ours, for a alone. The
// home is its user's who may put anything there at any time: whatever is done
// stays within it, and is done to what was just made or opened.
func writePrivate(a account, name string, content []byte) (err error) {
	home, err := os.OpenRoot(a.home)
	if err != nil {
		return err
	}
	defer home.Close()
	dir, err := openEnvDir(home, a)
	if err != nil {
		return err
	}
	defer dir.Close()
	aside := name + "." + rand.Text()
	out, err := dir.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(content)
	if a.uid >= 0 {
		err = errors.Join(err, out.Chown(a.uid, a.gid))
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = dir.Rename(aside, name)
	}
	if err != nil {
		return errors.Join(err, dir.Remove(aside))
	}
	return nil
}

// openEnvDir opens the folder of the script, and makes it unless it is there. A
// link or file of its name is removed.
func openEnvDir(home *os.Root, a account) (*os.Root, error) {
	st, err := home.Lstat(envDir)
	if err == nil && !st.IsDir() {
		if err := home.Remove(envDir); err != nil {
			return nil, err
		}
		err = fs.ErrNotExist
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = home.Mkdir(envDir, 0o700)
	}
	if err != nil {
		return nil, err
	}
	dir, err := home.OpenRoot(envDir)
	if err != nil {
		return nil, err
	}
	f, err := dir.OpenFile(".", os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err == nil {
		err = f.Chmod(0o700)
		if a.uid >= 0 {
			err = errors.Join(err, f.Chown(a.uid, a.gid))
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}
