package baseline

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

const (
	// recordBytes is what is made durable before a command is answered.
	recordBytes = 512
	// maxCommand and maxFile bound what is taken, in bytes.
	maxCommand = 64 << 10
	maxFile    = 1 << 30
)

// A disk does what commands and files can't do without: a record is durable
// before the answer, and files are written and read.
type disk struct {
	dir string

	mu     sync.Mutex
	ledger *os.File // guarded by mu
}

// openDisk makes a temporary directory.
func openDisk() (*disk, error) {
	dir, err := os.MkdirTemp("", "fairlead-baseline-")
	if err != nil {
		return nil, err
	}
	ledger, err := os.Create(filepath.Join(dir, "ledger"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &disk{dir: dir, ledger: ledger}, nil
}

func (d *disk) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ledger.Close()
	os.RemoveAll(d.dir)
}

// command appends a record, syncs, and answers.
func (d *disk) command(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, io.LimitReader(r.Body, maxCommand)); err != nil {
		return
	}
	answer(w, struct{}{}, d.record())
}

func (d *disk) record() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, err := d.ledger.Write(make([]byte, recordBytes)); err != nil {
		return err
	}
	return d.ledger.Sync()
}

// fileName is what files may be called.
var fileName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,60}$`)

func (d *disk) path(w http.ResponseWriter, r *http.Request) (string, bool) {
	name := strings.TrimLeft(r.PathValue("name"), ".")
	if !fileName.MatchString(name) {
		http.Error(w, "no name of a file", http.StatusBadRequest)
		return "", false
	}
	return filepath.Join(d.dir, "files-"+name), true
}

// put writes a file beside the old one and puts it in its place once it is on the
// disk.
func (d *disk) put(w http.ResponseWriter, r *http.Request) {
	path, ok := d.path(w, r)
	if !ok {
		return
	}
	f, err := os.CreateTemp(d.dir, "part-*")
	if err == nil {
		_, err = io.Copy(f, io.LimitReader(r.Body, maxFile))
		err = errors.Join(err, f.Sync(), f.Close())
		if err == nil {
			err = os.Rename(f.Name(), path)
		}
	}
	answer(w, struct{}{}, err)
}

func (d *disk) get(w http.ResponseWriter, r *http.Request) {
	if path, ok := d.path(w, r); ok {
		http.ServeFile(w, r, path)
	}
}
