package cookies

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
	"github.com/fairlead/fairlead/protocol/seal"
)

// Files of a pairing's folder. It exists as long as the first one does.
const (
	pairingFile  = "pairing.json"
	trackerName  = "sequences.json"
	keptName     = "cookies.jsonl"
	lastPushName = "last.json"

	pairingFormat = 1
	// maxPairings bounds those of a session.
	maxPairings = 64
)

var errNoAddress = protocol.Errorf(protocol.KindNotFound, "no envelopes are taken at this address")

// Modes of a pairing.
const (
	modePaired = "paired" // by keys and a code
	modeSecret = "secret" // by a secret that both sides were told
)

// A storedPairing is a pairing's file, 0600.
type storedPairing struct {
	Format      int                `json:"format"`
	ID          protocol.PairingID `json:"id"`
	User        protocol.UserID    `json:"user"`
	Name        string             `json:"name"`
	Hostname    string             `json:"hostname,omitempty"` // that the source has said, pairing
	Mode        string             `json:"mode"`
	Fingerprint string             `json:"fingerprint"`
	Address     string             `json:"address"`
	URL         string             `json:"url"`
	PairedAt    int64              `json:"pairedAt"` // Unix ms
	Secret      []byte             `json:"secret"`
	Versions    []int              `json:"versions"` // at its beginning
}

// A pairing is one browser of somebody's whose cookies a session gets.
type pairing struct {
	// Static after construction.
	storedPairing
	session *ground
	dir     string
	key     *seal.Key
	tracker tracker
	kept    keptSet

	// Guarded by the Sink's mu.
	versions []int
	sum      summary
	last     *op.SyncPush
	posts    int // that are under way
}

// newAddress returns the last part of a pairing's address: nobody guesses it.
func newAddress() string { return strings.ToLower(rand.Text()) }

func openPairing(in *ground, dir string, stored storedPairing, sum summary, last *op.SyncPush) (*pairing, error) {
	key, err := seal.SharedKey(string(stored.Secret))
	if err != nil {
		return nil, err
	}
	return &pairing{
		storedPairing: stored, session: in, dir: dir, key: key, versions: stored.Versions, sum: sum, last: last,
		tracker: tracker{filepath.Join(dir, trackerName)}, kept: keptSet{filepath.Join(dir, keptName), maxKept},
	}, nil
}

// loadPairing reads what is on disk. It fails with fs.ErrNotExist for what is none.
func loadPairing(in *ground, dir string) (*pairing, error) {
	text, err := os.ReadFile(filepath.Join(dir, pairingFile))
	if err != nil {
		return nil, err
	}
	var stored storedPairing
	if err := json.Unmarshal(text, &stored); err != nil {
		return nil, errors.New("its file is damaged") // of which the error may quote a part
	}
	if stored.Format != pairingFormat || string(stored.ID) != filepath.Base(dir) || !op.ValidSyncAddress(stored.Address) {
		return nil, fmt.Errorf("its file is of format %d, or of another pairing", stored.Format)
	}
	sum, err := keptSet{filepath.Join(dir, keptName), maxKept}.summary()
	if err != nil {
		return nil, fmt.Errorf("its cookies: %w", err)
	}
	last := new(op.SyncPush)
	if text, err := os.ReadFile(filepath.Join(dir, lastPushName)); err != nil || json.Unmarshal(text, last) != nil {
		last = nil // nothing depends on it
	}
	return openPairing(in, dir, stored, sum, last)
}

// create puts a new pairing on disk, its own file last.
func (p *pairing) create() error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	if err := p.tracker.begin(); err != nil {
		return err
	}
	return p.save(p.Versions)
}

// save replaces the pairing's file.
func (p *pairing) save(versions []int) error {
	stored := p.storedPairing
	stored.Format, stored.Versions = pairingFormat, versions
	text, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	return program.ReplaceFile(filepath.Join(p.dir, pairingFile), text, 0o600)
}

// forget makes the pairing's end outlive everything.
func (p *pairing) forget() error {
	if err := os.Remove(filepath.Join(p.dir, pairingFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d, err := os.Open(p.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// saveLast stores what came of the latest push, for people to read: nothing depends
// on it, so nothing waits for the disk.
func (p *pairing) saveLast(last op.SyncPush) error {
	text, err := json.Marshal(last)
	if err != nil {
		return err
	}
	path := filepath.Join(p.dir, lastPushName)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// describe tells people of a pairing. It is called with the Sink's mu held.
func (p *pairing) describe(withURL bool) op.SyncPairing {
	d := op.SyncPairing{
		ID: p.ID, User: p.User, Name: cmp.Or(p.Name, p.Hostname), Mode: p.Mode, Fingerprint: p.Fingerprint,
		Versions: p.versions, PairedAt: p.PairedAt, Last: p.last,
	}
	if withURL {
		d.URL = p.URL
	}
	return d
}
