package workspace

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// Names of an upload's files in the staging folder.
const (
	partSuffix  = ".part"
	stateSuffix = ".json"
)

// maxStateBytes bounds an upload's state file.
const maxStateBytes = 64 << 10

// ErrChecksum is in the chain of a KindInvalid error: the bytes are not what
// their checksum says.
var ErrChecksum = errors.New("the bytes are not what their checksum says")

// An upload is a file that comes in pieces. On disk <id>.part holds its bytes so
// far, and <id>.json says what it is to become. A <id>.json without a <id>.part
// means that the upload is done.
type upload struct {
	// Static after construction.
	id    string
	state uploadFile

	busy sync.Mutex // held, with TryLock, by whoever works on its files
	dir  folder     // guarded by busy: where they are

	mu      sync.Mutex
	offset  int64     // guarded by mu
	touched time.Time // guarded by mu: when its last byte came
	done    bool      // guarded by mu
}

// begin makes u's files. u.busy is held.
func (u *upload) begin() error {
	d := u.dir
	var disk unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(d.fd(), &disk) }); err != nil {
		return err
	}
	if free := disk.Bavail * uint64(disk.Bsize); uint64(u.state.Size) > free {
		return unix.ENOSPC
	}
	f, err := d.open(u.id+partSuffix, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	return saveUpload(d, u.id, u.state)
}

// extend writes body to f behind offset. u's offset is what f then holds.
func (u *upload) extend(f *os.File, offset int64, body io.Reader, sum *Checksum) error {
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	room := u.state.Size - offset
	w := io.Writer(&early{f: f, at: offset})
	if sum != nil {
		w = io.MultiWriter(w, sum.Hash)
	}
	n, err := copyTo(w, io.LimitReader(body, room+1))
	switch {
	case n > room:
		n, err = 0, protocol.Errorf(protocol.KindTooLarge, "there are more bytes than the upload's %d", u.state.Size)
	case sum != nil && err != nil:
		n = 0 // nobody can tell whether they are right
	case sum != nil && !bytes.Equal(sum.Hash.Sum(nil), sum.Sum):
		n, err = 0, &protocol.Error{Kind: protocol.KindInvalid, Message: ErrChecksum.Error(), Err: ErrChecksum}
	}
	err = errors.Join(err, f.Truncate(offset+n), f.Sync())
	u.mu.Lock()
	u.offset, u.touched = offset+n, time.Now()
	u.mu.Unlock()
	return err
}

func (u *upload) isDone() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.done
}

// progress returns how far u is, whose time is ttl after its last byte.
func (u *upload) progress(ttl time.Duration) UploadState {
	u.mu.Lock()
	defer u.mu.Unlock()
	return UploadState{
		ID: u.id, Path: shown(u.state.Path), Size: u.state.Size, Offset: u.offset,
		Expires: u.touched.Add(ttl), Metadata: string(u.state.Metadata),
	}
}

// uploadID returns the id of the upload to which a file of the staging folder
// belongs.
func uploadID(name, suffix string) (string, bool) {
	id, ok := strings.CutSuffix(name, suffix)
	return id, ok && id != "" && !strings.HasPrefix(id, writePrefix)
}

// An uploadFile is the JSON form of what an upload is to become.
type uploadFile struct {
	Path      string `json:"path"` // clean
	Size      int64  `json:"size"`
	Subject   string `json:"subject"`
	NoReplace bool   `json:"no_replace,omitempty"`
	IfMatch   string `json:"if_match,omitempty"`
	Metadata  []byte `json:"metadata,omitempty"` // may be no UTF-8
}

func loadUpload(d folder, id string) (uploadFile, unix.Stat_t, error) {
	f, err := d.open(id+stateSuffix, unix.O_RDONLY, 0)
	if err != nil {
		return uploadFile{}, unix.Stat_t{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := retry(func() error { return unix.Fstat(int(f.Fd()), &st) }); err != nil {
		return uploadFile{}, st, err
	}
	if !isRegular(&st) {
		return uploadFile{}, st, errSpecial
	}
	text, err := io.ReadAll(io.LimitReader(f, maxStateBytes))
	if err != nil {
		return uploadFile{}, st, err
	}
	var state uploadFile
	if err := json.Unmarshal(text, &state); err != nil {
		return uploadFile{}, st, err
	}
	// Where terminals have the agent's uid, one may have written it.
	if clean, err := Clean(state.Path); err != nil || clean != state.Path || clean == "." || state.Size < 0 {
		return uploadFile{}, st, errors.New("its state is malformed")
	}
	return state, st, nil
}

func saveUpload(d folder, id string, state uploadFile) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if len(text) > maxStateBytes {
		return protocol.Errorf(protocol.KindTooLarge, "the upload's description is over %d bytes", maxStateBytes)
	}
	temp := writePrefix + rand.Text()
	f, err := d.open(temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = d.rename(temp, d, id+stateSuffix, true)
	}
	if err != nil {
		return errors.Join(err, d.unlink(temp))
	}
	return d.sync()
}

func (u *upload) since() time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.touched
}

// An UploadState is how far an upload is.
type UploadState struct {
	ID       string
	Path     string // "/…"
	Size     int64
	Offset   int64 // of the next byte; Size when the file has its place, or could take it
	Metadata string
	Expires  time.Time
	Done     *Written // by this call
}

// A Checksum is what the bytes of one Append must come to. When they don't they
// are dropped.
type Checksum struct {
	Hash hash.Hash
	Sum  []byte
}
