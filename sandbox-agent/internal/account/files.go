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

// Dir is our folder of a home, by which ClearLeftovers knows it, too.
const Dir = ".fairlead"

// Files in our folder of a home.
const (
	EnvFile         = "env.sh"   // what running shells read before their next prompt
	CredentialsFile = "mcp.json" // for programs whose environment is of an earlier life of the agent

	// What shells and the agent tell each other about commands, see [startFiles].
	PromptFile = "prompt" // the shell that showed the last prompt, as its process id
	RunFile    = "run"    // names the command to be waited for
	RanFile    = "ran"    // names the last one that has ended, and its exit status
)

// maxNoteBytes bounds what ReadNote reads.
const maxNoteBytes = 256

// WritePrivate puts content into a file of a's folder of ours, for a alone. The
// home is its user's who may put anything there at any time: whatever is done
// stays within it, and is done to what was just made or opened.
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

// openEnvDir opens the folder of the script, and makes it unless it is there. A
// link or file of its name is removed.
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

// ReadNote returns what is in a file of our folder of a's home, and when it was
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
