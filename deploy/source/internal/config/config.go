// Package config keeps what fairlead-source knows between two runs in the files of
// seed 004: source.yaml, blocklist.yaml, keys/<peer>.json, and three of our own.
package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/deploy/program/sitepolicy"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/seal"
)

// The files' names.
const (
	sourceFile  = "source.yaml"
	loginFile   = "login.json"
	pairingFile = "pairing.json"
	stateFile   = "state.json"
	lockFile    = "lock"
	keysFolder  = "keys"
	scratch     = "tmp"
)

const (
	private = 0o600 // every file's mode
	maxFile = 1 << 20
)

// ErrNot says that something wasn't set up yet.
var (
	ErrNotLoggedIn = errors.New("not logged in")
	ErrNotPaired   = errors.New("not paired with a sandbox")
)

// A Dir is a configuration folder. Only its owner can look into it.
type Dir struct{ path string }

// Open returns the folder at path, which is made if it isn't there.
func Open(path string) (Dir, error) {
	for _, dir := range []string{path, filepath.Join(path, keysFolder), filepath.Join(path, scratch)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return Dir{}, err
		}
	}
	st, err := os.Stat(path)
	if err != nil {
		return Dir{}, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return Dir{}, fmt.Errorf("%s: others can look into it (chmod 700)", path)
	}
	return Dir{path}, nil
}

// Path returns where the folder is.
func (d Dir) Path() string { return d.path }

// PolicyPath returns where the policy is.
func (d Dir) PolicyPath() string { return d.in(sitepolicy.Name) }

// Scratch returns where copies of cookie files are for a moment.
func (d Dir) Scratch() string { return d.in(scratch) }

func (d Dir) in(name string) string { return filepath.Join(d.path, name) }

// Lock waits until no other fairlead-source pushes or pairs by way of this folder. A
// push that has read the cookies first is then the one that sends them first. What
// an earlier run has left in the scratch folder goes.
func (d Dir) Lock(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(d.in(lockFile), os.O_RDWR|os.O_CREATE, private)
	if err != nil {
		return nil, err
	}
	for syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-time.After(50 * time.Millisecond):
		}
	}
	left, _ := filepath.Glob(filepath.Join(d.Scratch(), "cookies-*"))
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return func() { _ = f.Close() }, nil
}

// A Source is source.yaml: what seed 004's own program has there, too. Members that
// aren't here are left to that program.
type Source struct {
	Chrome   Chrome   `yaml:"chrome,omitempty"`
	Browser  Browser  `yaml:"browser,omitempty"`
	Sink     Sink     `yaml:"sink,omitempty"`
	Peer     Peer     `yaml:"peer,omitempty"`
	Security Security `yaml:"security,omitempty"`
}

// Chrome says where the cookies are, if not where the browser usually has them.
type Chrome struct {
	DBPath string `yaml:"db_path,omitempty"`
}

// Browser says whose cookies are sent; empty: the first that is found.
type Browser struct {
	Name    string `yaml:"name,omitempty"`
	Profile string `yaml:"profile,omitempty"`
}

// Sink is where they go.
type Sink struct {
	URL string `yaml:"url,omitempty"`
}

// Peer names the key file.
type Peer struct {
	Hostname string `yaml:"hostname,omitempty"`
}

// Security holds a secret that both sides were told, instead of a key file.
type Security struct {
	SharedSecret string `yaml:"shared_secret,omitempty"`
}

// Source reads source.yaml, without which everything in it is empty.
func (d Dir) Source() (s Source, err error) {
	data, err := read(d.in(sourceFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = yaml.Unmarshal(data, &s)
	}
	if err != nil {
		return s, fmt.Errorf("%s: it can't be read", d.in(sourceFile)) // what is wrong may quote a secret
	}
	return s, nil
}

// InHome returns the path with a ~/ at its beginning read as the seed's program does.
func (c Chrome) InHome(home string) string {
	if below, ok := strings.CutPrefix(c.DBPath, "~/"); ok {
		return filepath.Join(home, below)
	}
	return c.DBPath
}

// PutSource writes source.yaml.
func (d Dir) PutSource(s Source) error {
	data, err := yaml.Marshal(s)
	if err != nil {
		return err
	}
	return program.ReplaceFile(d.in(sourceFile), data, private)
}

// Policy reads blocklist.yaml. One that can't be read is an error: then nothing is
// sent.
func (d Dir) Policy() (sitepolicy.File, error) { return sitepolicy.Read(d.PolicyPath()) }

// A Login is who uses which control plane, and which session.
type Login struct {
	ControlPlane string             `json:"controlPlane"`
	Token        string             `json:"token"`
	User         string             `json:"user"`
	Session      protocol.SessionID `json:"session"`
	Dashboard    string             `json:"dashboard,omitempty"`
}

// Login returns what the last login said, or ErrNotLoggedIn.
func (d Dir) Login() (l Login, err error) { return l, d.readJSON(loginFile, &l, ErrNotLoggedIn) }

// PutLogin writes it.
func (d Dir) PutLogin(l Login) error { return d.writeJSON(loginFile, l) }

// A Pairing is what is known of the one that there is.
type Pairing struct {
	ID           protocol.PairingID `json:"pairing"`
	Session      protocol.SessionID `json:"session"`
	ControlPlane string             `json:"controlPlane"`
	Fingerprint  string             `json:"fingerprint"`
	PairedAt     time.Time          `json:"pairedAt"`
}

// Pairing returns the pairing, or ErrNotPaired.
func (d Dir) Pairing() (p Pairing, err error) { return p, d.readJSON(pairingFile, &p, ErrNotPaired) }

// PutPairing writes it.
func (d Dir) PutPairing(p Pairing) error { return d.writeJSON(pairingFile, p) }

// A State is what has been pushed.
type State struct {
	Sequence int64 `json:"sequence"` // the last one that was used, or was about to be
	// Unanswered says that a push was sent since Last, and may have been taken.
	Unanswered bool  `json:"unanswered,omitempty"`
	Last       *Push `json:"last,omitempty"`
}

// Clean reports whether the sandbox certainly has nothing of this folder's.
func (s State) Clean() bool { return !s.Unanswered && (s.Last == nil || s.Last.Cookies == 0) }

// A Push is one that was answered.
type Push struct {
	At      time.Time `json:"at"`
	Cookies int       `json:"cookies"` // sent
	Written int       `json:"written"`
	Dropped int       `json:"dropped"` // by the sandbox's policy
	Refused int       `json:"refused"`
	Removed int       `json:"removed"`
}

// State returns it; before the first push it is empty.
func (d Dir) State() (s State, err error) {
	empty := errors.New("none")
	if err = d.readJSON(stateFile, &s, empty); errors.Is(err, empty) {
		err = nil
	}
	return s, err
}

// PutState writes it.
func (d Dir) PutState(s State) error { return d.writeJSON(stateFile, s) }

// A Key is keys/<peer>.json.
type Key struct {
	Peer        string    `json:"peer"`
	Key         []byte    `json:"key"`
	PairedAt    time.Time `json:"paired_at"`
	Fingerprint string    `json:"fingerprint"`
	Version     int       `json:"protocol_version"`
	AnnouncedAs string    `json:"announced_as,omitempty"`
}

// Key returns the key file of a peer, or ErrNotPaired. It fails if others can read it.
func (d Dir) Key(peer string) (k Key, err error) {
	st, err := os.Stat(d.KeyPath(peer))
	if err == nil && st.Mode().Perm()&0o077 != 0 {
		return k, fmt.Errorf("%s: others can read it (chmod 600, and pair anew)", d.KeyPath(peer))
	}
	if err := d.readJSON(filepath.Join(keysFolder, fileName(peer)), &k, ErrNotPaired); err != nil {
		return k, err
	}
	if len(k.Key) != len(seal.Paired{}) {
		return k, fmt.Errorf("%s: not a key of %d bytes", d.KeyPath(peer), len(seal.Paired{}))
	}
	return k, nil
}

// KeyPath returns where a peer's key is.
func (d Dir) KeyPath(peer string) string { return filepath.Join(d.path, keysFolder, fileName(peer)) }

// PutKey writes a key file.
func (d Dir) PutKey(k Key) error { return d.writeJSON(filepath.Join(keysFolder, fileName(k.Peer)), k) }

// Forget removes a pairing with its key, and what was pushed by it. The policy and the
// login stay.
func (d Dir) Forget() error {
	s, err := d.Source()
	if err != nil {
		return err
	}
	if s.Peer.Hostname != "" {
		if err := remove(d.KeyPath(s.Peer.Hostname)); err != nil {
			return err
		}
	}
	s.Sink, s.Peer, s.Security = Sink{}, Peer{}, Security{}
	if err := d.PutSource(s); err != nil {
		return err
	}
	return errors.Join(remove(d.in(pairingFile)), remove(d.in(stateFile)))
}

// fileName returns a key file's name as seed 004's program makes it.
func fileName(peer string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '_'
	}, peer)
	return strings.TrimLeft(name, ".") + ".json"
}

func (d Dir) readJSON(name string, v any, missing error) error {
	data, err := read(d.in(name))
	if errors.Is(err, fs.ErrNotExist) {
		return missing
	}
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return fmt.Errorf("%s: it can't be read", d.in(name)) // what is wrong may quote a secret
	}
	return nil
}

func (d Dir) writeJSON(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return program.ReplaceFile(d.in(name), append(data, '\n'), private)
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxFile))
}

func remove(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
