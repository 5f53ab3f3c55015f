package bridge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"id":"a","result":{}}`, `[{"method":"x"}]`, `null`, `{"id":1e400,"method":"x"}`,
		`{"id":1.0,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"v"}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parse(text)
		if id := idWithin(text); id != nil && !json.Valid(id) {
			t.Fatalf("id %q", id)
		}
		if err != nil {
			return
		}
		if !json.Valid(text) || len(m.parts()) == 0 {
			t.Fatalf("%q was taken", text)
		}
		for _, one := range m.calls() {
			if spell(one.rawID) != one.id || !json.Valid(failure(one.rawID, 1, "x")) {
				t.Fatalf("id %q is spelled %q", one.rawID, one.id)
			}
		}
		m.subject()
		m.isReply()
	})
}

// However a stream comes apart in reads, its events are the same.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("id: 1\ndata: {}\n\n: x\ndata: a\ndata: b\nretry: 5\n\n"))
	f.Add([]byte("data: a\r\n\r\ndata\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		read := func(r io.Reader) (list []string, at cursor, err error) {
			err = readEvents(r, 64, &at, func(data []byte) bool {
				if len(data) > 2*64 {
					t.Fatalf("an event of %d bytes", len(data))
				}
				list = append(list, string(data))
				return false
			})
			return list, at, err
		}
		one, at, err := read(bytes.NewReader(text))
		if err == nil {
			t.Fatal("no error at the end")
		}
		two, at2, err2 := read(iotest.OneByteReader(bytes.NewReader(text)))
		if strings.Join(one, "\x00") != strings.Join(two, "\x00") || at != at2 || err.Error() != err2.Error() {
			t.Fatalf("%q, %v, %v in one read, %q, %v, %v in several", one, at, err, two, at2, err2)
		}
	})
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nbb\n\nccccccccccccccccccccccc\nd"), uint8(4))
	f.Fuzz(func(t *testing.T, text []byte, limit uint8) {
		in := bufio.NewReaderSize(iotest.HalfReader(bytes.NewReader(text)), 16)
		want := bytes.Split(text, []byte("\n"))
		for i := 0; ; i++ {
			got, over, err := readLine(in, int(limit))
			if i == len(want) {
				t.Fatalf("there is a line %d", i)
			}
			if over != (len(want[i]) > int(limit)) || !bytes.HasPrefix(want[i], got) || !over && len(got) != len(want[i]) || len(got) > int(limit) {
				t.Fatalf("line %d is %q, over %v, want %q", i, got, over, want[i])
			}
			if errors.Is(err, io.EOF) {
				if i != len(want)-1 {
					t.Fatalf("it ends after line %d", i)
				}
				return
			}
		}
	})
}
