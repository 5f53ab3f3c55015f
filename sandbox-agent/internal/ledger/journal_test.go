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
	var data []byte
	for _, rec := range recs {
		data = append(data, encodeRecord(rec)...)
	}
	return recs, data
}

// TestCutJournal reads every prefix: whole records stay, a cut one is dropped.
func TestCutJournal(t *testing.T) {
	recs, data := sample()
	for n := range len(data) + 1 {
		got, err := decodeJournal(data[:n])
		if err != nil {
			t.Fatalf("prefix of %d: %v", n, err)
		}
		// A record that lacks only its line end is whole.
		want := recs[:min(bytes.Count(data[:min(n+1, len(data))], []byte("\n")), len(recs))]
		if len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("prefix of %d: %d records, want %d", n, len(got), len(want))
		}
	}
}

func TestZeroedTail(t *testing.T) {
	recs, data := sample()
	cut := bytes.LastIndexByte(data[:len(data)-1], '\n') + 30
	clear(data[cut : len(data)-1])
	got, err := decodeJournal(append(data, data...))
	if err != nil || len(got) != len(recs)-1 {
		t.Fatalf("%d records, %v", len(got), err)
	}
}

// TestDamagedJournal changes one bit anywhere but in the last line end: the
// ledger refuses all commands, and the agent can still dial.
func TestDamagedJournal(t *testing.T) {
	_, data := sample()
	for i := range len(data) - 1 {
		bad := bytes.Clone(data)
		bad[i] ^= 2
		if _, err := decodeJournal(bad); !errors.Is(err, errDamaged) {
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
	f.Fuzz(func(t *testing.T, data []byte) {
		recs, err := decodeJournal(data)
		if err != nil {
			return
		}
		var again []byte
		for _, rec := range recs {
			again = append(again, encodeRecord(rec)...)
		}
		back, err := decodeJournal(again)
		if err != nil || len(back) != len(recs) {
			t.Fatalf("%d records, then %d, %v", len(recs), len(back), err)
		}
	})
}
