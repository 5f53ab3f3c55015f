package ledger

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

func sample() ([]record, []byte) {
	recs := []record{
		{Op: opBegin, ID: "cmd_1", Digest: digest[:], Expires: 1},
		{Op: opFinish, ID: "cmd_1", Result: []byte("made\n")},
		{Op: opBegin, ID: "cmd_2", Digest: digest[:], Expires: 2},
	}
	data := header(0)
	for _, rec := range recs {
		data = append(data, encodeRecord(rec)...)
	}
	return recs, data
}

// TestCutJournal reads every prefix, cut or zeroed from there: whole records
// stay, a cut one is dropped. The first record was synced before the journal had
// its name, so a journal without a whole one is damaged.
func TestCutJournal(t *testing.T) {
	recs, data := sample()
	lines := len(header(0))
	for _, data := range [][]byte{data, data[lines:]} { // as this build writes it, and as earlier ones did
		first := bytes.IndexByte(data, '\n')
		for n := range len(data) + 1 {
			zeroed := bytes.Clone(data)
			clear(zeroed[n:])
			for _, cut := range [][]byte{data[:n], zeroed, append(data[:n:n], 0)} {
				_, got, err := decodeJournal(cut)
				if n < first {
					if !errors.Is(err, errDamaged) {
						t.Fatalf("prefix of %d: %d records, %v", n, len(got), err)
					}
					continue
				}
				if err != nil {
					t.Fatalf("prefix of %d: %v", n, err)
				}
				// A record that lacks only its line end is whole.
				want := bytes.Count(data[:min(n+1, len(data))], []byte("\n")) - (bytes.Count(data, []byte("\n")) - len(recs))
				if len(got) != want || want > 0 && !reflect.DeepEqual(got, recs[:want]) {
					t.Fatalf("prefix of %d: %d records, want %d", n, len(got), want)
				}
			}
		}
	}
}

// TestZeroed zeroes every range but at the end: a crash leaves nothing whole
// behind what it took, so that is damage, and no record gets lost in it.
func TestZeroed(t *testing.T) {
	recs, data := sample()
	last := bytes.LastIndexByte(data[:len(data)-1], '\n') + 1
	for from := range len(data) - 1 {
		for to := from + 1; to < len(data); to++ {
			bad := bytes.Clone(data)
			clear(bad[from:to])
			_, got, err := decodeJournal(bad)
			if from < last && (to <= last || data[from] == '\n') || from < len(header(0)) {
				if !errors.Is(err, errDamaged) {
					t.Fatalf("[%d, %d): %d records, %v", from, to, len(got), err)
				}
			} else if err != nil || len(got) < bytes.Count(data[:from], []byte("\n"))-1 || len(got) > 0 && !reflect.DeepEqual(got, recs[:len(got)]) {
				t.Fatalf("[%d, %d): %d records, %v", from, to, len(got), err)
			}
		}
	}
}

// TestNothingWholeIsDropped: a torn place is no excuse for what stands behind it.
func TestNothingWholeIsDropped(t *testing.T) {
	recs, data := sample()
	last := string(encodeRecord(recs[2]))
	for name, tail := range map[string]string{
		"torn, then whole":            last[:20] + last,
		"zeros, then whole":           "\x00\x00" + last,
		"zeroed line, then whole":     last[:20] + "\x00\n" + last,
		"zeros, whole, torn":          "\x00\n" + last + last[:20],
		"zeros, whole, junk":          "\x00" + strings.TrimSuffix(last, "\n") + "\b" + last[:20],
		"junk on a line of its own":   "junk\n",
		"a second header":             string(header(0)),
		"zeros, then another journal": "\x00\n" + string(data),
	} {
		if _, got, err := decodeJournal(append(bytes.Clone(data), tail...)); !errors.Is(err, errDamaged) {
			t.Errorf("%s: %d records, %v", name, len(got), err)
		}
	}
	for name, tail := range map[string]string{
		"torn": last[:20], "zeros": "\x00\x00", "torn and zeros": last[:20] + "\x00\x00", "zeros and torn": "\x00\x00" + last[20:],
		"zeros between": last[:20] + "\x00\x00" + last[22:],
	} {
		if _, got, err := decodeJournal(append(bytes.Clone(data), tail...)); err != nil || !reflect.DeepEqual(got, recs) {
			t.Errorf("%s: %d records, %v", name, len(got), err)
		}
	}
}

// TestEmptiedJournal takes the journal away in every way that leaves nothing of
// it: a command that ran doesn't run again, and the agent can still dial.
func TestEmptiedJournal(t *testing.T) {
	for name, empty := range map[string]func(path string, size int) error{
		"missing":  func(path string, _ int) error { return os.Remove(path) },
		"empty":    func(path string, _ int) error { return os.Truncate(path, 0) },
		"all zero": func(path string, size int) error { return os.WriteFile(path, make([]byte, size), 0o600) },
		"zero in an early line": func(path string, _ int) error {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			data[len(header(0))+20] = 0
			return os.WriteFile(path, data, 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, journalName)
			l := open(t, dir)
			generation, err := l.NextGeneration()
			must(t, err)
			begin(t, l, "cmd_1")
			begin(t, l, "cmd_2")
			must(t, l.Close())
			st, err := os.Stat(path)
			must(t, err)
			must(t, empty(path, int(st.Size())))
			for range 2 {
				l = open(t, dir)
				if err := l.Err(); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), journalName) {
					t.Fatalf("said %v", err)
				}
				for _, id := range []protocol.CommandID{"cmd_1", "cmd_3"} {
					_, err := l.Begin(id, digest, time.Now().Add(ttl))
					wantKind(t, err, protocol.KindUnavailable)
				}
				generation++
				if got, err := l.NextGeneration(); err != nil || got != generation {
					t.Errorf("generation %d, %v; want %d", got, err, generation)
				}
			}
		})
	}
}

// TestFirstJournal: a ledger that is new has a journal before it has a
// generation, even where its Open could write none.
func TestFirstJournal(t *testing.T) {
	dir := t.TempDir()
	obstacle := filepath.Join(dir, journalName+".new")
	must(t, os.MkdirAll(filepath.Join(obstacle, "x"), 0o700))
	l := open(t, dir)
	if _, err := l.NextGeneration(); err == nil {
		t.Fatal("a generation without a journal")
	}
	must(t, os.RemoveAll(obstacle))
	if got, err := l.NextGeneration(); err != nil || got != 1 {
		t.Fatalf("generation %d, %v", got, err)
	}
	l = open(t, dir) // the one before was killed
	must(t, l.Err())
	begin(t, l, "cmd_1")
	if data, err := os.ReadFile(filepath.Join(dir, journalName)); err != nil || !bytes.HasPrefix(data, header(0)) {
		t.Errorf("begins with %.40q, %v", data, err)
	}
}

// TestEarlierBuild reads a journal without a header, and leaves one with it.
func TestEarlierBuild(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, journalName)
	expires := time.Now().Add(ttl).UnixMilli()
	old := encodeRecord(record{Op: opBegin, ID: "cmd_1", Digest: digest[:], Expires: expires})
	must(t, os.WriteFile(path, old, 0o600))
	l := open(t, dir)
	wantPrior(t, l, "cmd_1", StateUnknown, "")
	if data, err := os.ReadFile(path); err != nil || string(data) != string(header(0))+string(old) {
		t.Errorf("left %q, %v", data, err)
	}
}

// TestDamagedJournal changes one bit anywhere but in the last line end: the
// ledger refuses all commands, and the agent can still dial.
func TestDamagedJournal(t *testing.T) {
	_, data := sample()
	for i := range len(data) - 1 {
		bad := bytes.Clone(data)
		bad[i] ^= 2
		if _, _, err := decodeJournal(bad); !errors.Is(err, errDamaged) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	dir := t.TempDir()
	data[20] ^= 2
	if err := os.WriteFile(filepath.Join(dir, journalName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the damage stays
		l := open(t, dir)
		if err := l.Err(); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), journalName) {
			t.Fatal(err)
		}
		_, err := l.Begin("cmd_3", digest, time.Now().Add(ttl))
		wantKind(t, err, protocol.KindUnavailable)
		if !strings.Contains(err.Error(), "damaged") || strings.Contains(err.Error(), dir) {
			t.Errorf("refused with %q", err)
		}
		if e, err := l.Lookup("cmd_1", digest); e != nil || err != nil {
			t.Errorf("known: %+v, %v", e, err)
		}
		if _, err := l.NextGeneration(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadFile(filepath.Join(dir, journalName)); err != nil || !bytes.Equal(left, data) {
		t.Errorf("the damaged journal was touched: %v", err)
	}
}

func FuzzDecodeJournal(f *testing.F) {
	_, data := sample()
	f.Add(data)
	f.Add(data[:len(data)-7])
	f.Add(data[len(header(0)):])
	f.Add(append(data[:len(data)-7:len(data)-7], 0, 0, '\n', 'x'))
	f.Add(append(data[:len(data)-7:len(data)-7], data...))
	f.Add(make([]byte, 20))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, recs, err := decodeJournal(data)
		if err != nil {
			return
		}
		whole := 0
		for line := range bytes.SplitSeq(data, []byte("\n")) {
			if rec, err := decodeRecord(line); err == nil && rec.Op != opHeader {
				whole++
			}
		}
		if whole > len(recs) {
			t.Fatalf("%d records of %d", len(recs), whole)
		}
		again := header(0)
		for _, rec := range recs {
			again = append(again, encodeRecord(rec)...)
		}
		_, back, err := decodeJournal(again)
		if err != nil || len(back) != len(recs) {
			t.Fatalf("%d records, then %d, %v", len(recs), len(back), err)
		}
	})
}
