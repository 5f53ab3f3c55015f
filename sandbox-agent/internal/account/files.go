package account

import (
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is our folder in a home; ClearLeftovers recognises homes by it.
const Dir = ".fairlead"

// Files in that folder.
const (
	EnvFile         = "env.sh"   // running shells read it before their next prompt
	CredentialsFile = "mcp.json" // for programs started before the agent restarted

	// What shells and the agent exchange about commands, see [startFiles].
	PromptFile = "prompt" // the shell that showed the last prompt, as its process id
	RunFile    = "run"    // names the command to wait for
	RanFile    = "ran"    // names the last ended command, with its exit status
)

// maxNoteBytes bounds what ReadNote reads.
const maxNoteBytes = 256

// WritePrivate writes a file in Dir of a's home, readable by a only. The home's
// user may put anything there at any time, so every access stays within the
// home and uses only what was just made or opened.
func (a Account) WritePrivate(name string, content []byte) (err error) {
	home, err := os.OpenRoot(a.Home)
	if err != nil {
		return err
	}
	defer home.Close()
	folder, err := openEnvDir(home, a)
	if err != nil {
		return err
	}
	defer folder.Close()
	aside := name + "." + rand.Text()
	out, err := folder.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = out.Write(content)
	if a.UID >= 0 {
		err = errors.Join(err, out.Chown(a.UID, a.GID))
	}
	if err = errors.Join(err, out.Close()); err == nil {
		err = folder.Rename(aside, name)
	}
	if err != nil {
		return errors.Join(err, folder.Remove(aside))
	}
	return nil
}

// openEnvDir opens Dir and makes it if necessary. It removes a link or file of
// that name.
func openEnvDir(home *os.Root, a Account) (*os.Root, error) {
	st, err := home.Lstat(Dir)
	if err == nil && !st.IsDir() {
		if err := home.Remove(Dir); err != nil {
			return nil, err
		}
		err = fs.ErrNotExist
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = home.Mkdir(Dir, 0o700)
	}
	if err != nil {
		return nil, err
	}
	folder, err := home.OpenRoot(Dir)
	if err != nil {
		return nil, err
	}
	f, err := folder.OpenFile(".", os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err == nil {
		err = f.Chmod(0o700)
		if a.UID >= 0 {
			err = errors.Join(err, f.Chown(a.UID, a.GID))
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return nil, errors.Join(err, folder.Close())
	}
	return folder, nil
}

// ReadNote returns the content of a file in Dir of a's home, and when it was
// written. Its user may have put anything there.
func (a Account) ReadNote(name string) (string, time.Time, error) {
	home, err := os.OpenRoot(a.Home)
	if err != nil {
		return "", time.Time{}, err
	}
	defer home.Close()
	f, err := home.OpenFile(filepath.Join(Dir, name), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return "", time.Time{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", time.Time{}, err
	}
	if !st.Mode().IsRegular() {
		return "", time.Time{}, errors.New("not a file")
	}
	note, err := io.ReadAll(io.LimitReader(f, maxNoteBytes))
	return string(note), st.ModTime(), err
}
