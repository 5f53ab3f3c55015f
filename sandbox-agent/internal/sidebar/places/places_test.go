package places

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

var some = []Place{
	{Number: 7, Tab: 1, Type: "user", Time: 1, Command: "cmd_1"},
	{Number: 8, Tab: 1, Type: "text", Time: 2, Seq: 9},
	{Number: 10, Tab: 2, Type: "agent_error", Time: 3, Text: "Stopped by user"},
}

func open(t *testing.T, path string) (*File, []Place) {
	t.Helper()
	f, all, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f, all
}

// What was added is there after a crash, but for a line that it has cut.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "places")
	f, all := open(t, path)
	if len(all) > 0 {
		t.Errorf("%v", all)
	}
	for _, p := range some {
		if err := f.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range 10 {
		if err := os.WriteFile(path, whole[:len(whole)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		want := some
		if cut > 0 {
			want = some[:2]
		}
		again, all := open(t, path)
		if !slices.Equal(all, want) || again.Len() != len(want) {
			t.Errorf("without %d bytes: %v", cut, all)
		}
	}
	f, _ = open(t, path)
	if err := f.Replace(some[2:]); err != nil {
		t.Fatal(err)
	}
	if err := f.Add(Place{Number: 11}); err != nil || f.Len() != 2 {
		t.Errorf("%d, %v", f.Len(), err)
	}
	if _, all := open(t, path); len(all) != 2 || all[0] != some[2] || all[1].Number != 11 {
		t.Errorf("%v", all)
	}
	f.Close()
	if err := f.Add(some[0]); err == nil {
		t.Error("a place was added to a file that is closed")
	}
}

// Whatever a file holds, numbers rise.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"n":7,"t":1,"k":"user","m":1,"c":"cmd_1"}` + "\n" + `{"n":8,"k":"text","s":3}` + "\n"))
	f.Add([]byte(`{"n":8}` + "\n" + `{"n":7}` + "\n"))
	f.Add([]byte("\n{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var last uint64
		for _, p := range decode(text) {
			if p.Number <= last {
				t.Errorf("%d behind %d", p.Number, last)
			}
			last = p.Number
		}
	})
}
