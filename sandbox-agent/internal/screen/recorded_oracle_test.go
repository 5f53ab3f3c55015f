package screen_test

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorded reads what testdata/record.go wrote.
func recorded(t *testing.T, name string) *script {
	t.Helper()
	f, err := os.Open(name + ".bin.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	output, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	sizes, err := os.Open(name + ".size")
	if err != nil {
		t.Fatal(err)
	}
	defer sizes.Close()
	s := new(script)
	at := 0
	for lines := bufio.NewScanner(sizes); lines.Scan(); {
		var offset, cols, rows int
		if _, err := fmt.Sscan(lines.Text(), &offset, &cols, &rows); err != nil || offset < at || offset > len(output) {
			t.Fatalf("%s.size: %q: %v", name, lines.Text(), err)
		}
		if s.Cols == 0 {
			s.Cols, s.Rows = cols, rows
			continue
		}
		s.Steps = append(s.Steps, step{Output: string(output[at:offset])}, step{Cols: cols, Rows: rows})
		at = offset
	}
	s.Steps = append(s.Steps, step{Output: string(output[at:])})
	return s
}

// TestRecordedStreams compares what real programs drew, as they were resized,
// and the same on a terminal of another size, with keyframes taken anywhere.
func TestRecordedStreams(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("testdata/streams/*.bin.gz")
	if err != nil || len(names) == 0 {
		t.Fatalf("no recorded streams: %v", err)
	}
	o := startOracle(t)
	r := rand.New(rand.NewPCG(1, 2)) // the same cuts each time
	for _, name := range names {
		s := recorded(t, strings.TrimSuffix(name, ".bin.gz"))
		s.Junk = r.Uint64()
		for range 4 {
			s.Cuts = append(s.Cuts, r.IntN(s.length()))
		}
		narrow := &script{Cols: 41, Rows: 13, Junk: s.Junk, Chunk: 4093}
		for _, step := range s.Steps {
			if step.Cols == 0 {
				narrow.Steps = append(narrow.Steps, step)
			}
		}
		narrow.Cuts = []int{r.IntN(narrow.length())}
		pieces := *s
		pieces.Chunk, pieces.Cuts = 7, nil
		if s.length() > 1<<16 {
			pieces.Chunk = 997
		}
		for kind, s := range map[string]*script{"whole": s, "pieces": &pieces, "narrow": narrow} {
			t.Run(filepath.Base(name)+"/"+kind, func(t *testing.T) {
				v := s.check(t, o, newScreenGrid)
				if v.difference != "" {
					t.Errorf("%s", v.difference)
				}
				if v.failed != "" || v.unsteady {
					t.Logf("xterm.js failed: %q, was unsteady: %t", v.failed, v.unsteady)
				}
			})
		}
	}
}
