package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/protocol"
)

// Files of the state directory.
const (
	journalName    = "commands.journal"
	generationName = "generation"
)

// Operations of a record.
const (
	opHeader = "header" // the first record, without an id; expires: the latest of what was forgotten
	opBegin  = "begin"  // digest, expires
	opFinish = "finish" // result
	opNoted  = "noted"  // the result was lost, and that is recorded elsewhere
)

// A record is one line of the journal:
//
//	CRC-32C of the JSON, 8 hexadecimal digits | ":" | JSON | "\n"
type record struct {
	Op      string             `json:"op"`
	ID      protocol.CommandID `json:"id,omitempty"`
	Digest  []byte             `json:"digest,omitempty"`  // SHA-256
	Expires int64              `json:"expires,omitempty"` // Unix milliseconds
	Result  []byte             `json:"result,omitempty"`
}

const sumDigits = 8

var errDamaged = errors.New("journal is damaged")

func checksum(data []byte) string {
	return fmt.Sprintf("%0*x", sumDigits, crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
}

func encodeRecord(rec record) []byte {
	body, err := json.Marshal(rec)
	if err != nil {
		panic(fmt.Sprintf("ledger: record can't be encoded: %v", err)) // plain strings and bytes only
	}
	return fmt.Appendf(nil, "%s:%s\n", checksum(body), body)
}

// decodeRecord decodes a line without its end.
func decodeRecord(line []byte) (record, error) {
	sum, body, ok := bytes.Cut(line, []byte(":"))
	if !ok || string(sum) != checksum(body) {
		return record{}, errDamaged
	}
	var rec record
	if err := json.Unmarshal(body, &rec); err != nil || protocol.ValidID(rec.ID) == (rec.Op == opHeader) {
		return record{}, errDamaged
	}
	switch {
	case rec.Op == opBegin && len(rec.Digest) == 32, rec.Op == opFinish, rec.Op == opNoted, rec.Op == opHeader && rec.ID == "":
		return rec, nil
	}
	return record{}, errDamaged
}

// header begins each journal. It tells an emptied journal from an empty one,
// and holds the horizon of the forgotten entries. Journals of earlier builds
// have none.
func header(horizon int64) []byte { return encodeRecord(record{Op: opHeader, Expires: horizon}) }

// decodeJournal decodes a whole journal and returns its horizon and its
// records. A crash may have cut the last write short, or left zeros where a
// block never reached the disk (a record holds none). Nothing after that place
// was synced, so nothing there has run, and decodeJournal drops it. But a crash
// leaves no whole record after such a place, so one there is damage. A journal
// without a first record, and anything else that doesn't decode, is damage too.
// A cut between two records looks like records never written.
func decodeJournal(data []byte) (horizon int64, recs []record, err error) {
	data = bytes.TrimRight(data, "\x00")
	if len(data) == 0 {
		return 0, nil, fmt.Errorf("nothing is in it: %w", errDamaged)
	}
	for number := 1; len(data) > 0; number++ {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		rec, err := decodeRecord(line)
		torn := number > 1 && (!whole || bytes.IndexByte(line, 0) >= 0)
		switch {
		case err == nil && number == 1 && rec.Op == opHeader:
			horizon = rec.Expires
		case err == nil && rec.Op != opHeader:
			recs = append(recs, rec)
		case err != nil && torn && !holdsRecord(data):
			return horizon, recs, nil
		default:
			return 0, nil, fmt.Errorf("line %d: %w", number, errDamaged)
		}
		data = rest
	}
	return horizon, recs, nil
}

// holdsRecord reports whether data holds a whole record anywhere, whatever is
// around it.
func holdsRecord(data []byte) bool {
	for {
		i := bytes.Index(data, []byte(":{"))
		if i < 0 {
			return false
		}
		var body json.RawMessage
		if i >= sumDigits && json.NewDecoder(bytes.NewReader(data[i+1:])).Decode(&body) == nil &&
			string(data[i-sumDigits:i]) == checksum(body) {
			return true
		}
		data = data[i+1:]
	}
}

// A journalFile is the journal, open for appending.
type journalFile interface {
	Write(p []byte) (int, error)
	Sync() error
	Truncate(size int64) error
	Close() error
	// Replaced reports whether another file has the journal's name now.
	Replaced() (bool, error)
}

type osJournal struct{ *os.File }

func (j osJournal) Replaced() (bool, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(j.Fd()), &st); err != nil {
		return false, err
	}
	return st.Nlink == 0, nil
}

// directory is the state directory. Its descriptor carries the lock that
// serializes processes which share it.
type directory struct {
	path string
	file *os.File
	wrap func(journalFile) journalFile // for tests; nil: as it is
}

func openDirectory(path string) (*directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &directory{path: path, file: f}, nil
}

func (d *directory) close() error { return d.file.Close() }

// locked runs fn while no other process is within locked. The lock ends with
// its process.
func (d *directory) locked(fn func() error) error {
	fd := int(d.file.Fd())
	for {
		err := unix.Flock(fd, unix.LOCK_EX)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", d.path, err)
		}
	}
	err := fn()
	return errors.Join(err, unix.Flock(fd, unix.LOCK_UN))
}

// readJournal returns no records if there is no journal yet. With a generation
// there must be one, because commands come over connections that have one.
func (d *directory) readJournal() (horizon int64, recs []record, err error) {
	path := filepath.Join(d.path, journalName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if generation, err := d.readGeneration(); generation > 0 || err != nil {
			return 0, nil, fmt.Errorf("%s is missing: %w", path, errDamaged)
		}
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, err
	}
	horizon, recs, err = decodeJournal(data)
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", path, err)
	}
	return horizon, recs, nil
}

// makeJournal makes an empty journal if there is none.
func (d *directory) makeJournal() error {
	_, err := os.Stat(filepath.Join(d.path, journalName))
	if errors.Is(err, fs.ErrNotExist) {
		return d.replace(journalName, header(0))
	}
	return err
}

func (d *directory) openJournal() (journalFile, error) {
	f, err := os.OpenFile(filepath.Join(d.path, journalName), os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	if d.wrap != nil {
		return d.wrap(osJournal{f}), nil
	}
	return osJournal{f}, nil
}

func (d *directory) readGeneration() (uint64, error) {
	path := filepath.Join(d.path, generationName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(string(data), "\n"), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%s: not a number", path)
	}
	return n, nil
}

// writeGeneration stores n, which exceeds the stored number. A full disk has no
// room for a new file, so there it overwrites the digits in place. They stay
// within the file's block and within one sector, which a disk writes wholly or
// not at all.
func (d *directory) writeGeneration(n uint64) error {
	data := fmt.Appendf(nil, "%d\n", n)
	err := d.replace(generationName, data)
	if !full(err) {
		return err
	}
	f, openErr := os.OpenFile(filepath.Join(d.path, generationName), os.O_WRONLY, 0)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// full reports whether err says that the disk has no room.
func full(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// replace puts data under name in one step that survives a crash: the file is
// then the new one or the old one, whole.
func (d *directory) replace(name string, data []byte) error {
	path := filepath.Join(d.path, name)
	temp := path + ".new"
	if err := writeSynced(temp, data); err != nil {
		return errors.Join(err, removed(temp)) // the disk may be full
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return d.file.Sync()
}

func removed(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Sync(); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}
