package intake

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

const (
	get   = "GET / HTTP/1.1\r\nHost: a\r\n"
	end   = "\r\n"
	chunk = "Transfer-Encoding: chunked\r\n"
)

func TestFraming(t *testing.T) {
	for name, c := range map[string]struct {
		sent string
		want error
	}{
		"no body":                      {get + end, nil},
		"a body":                       {get + "Content-Length: 5\r\n" + end + "hello" + get + end, nil},
		"a body like a head":           {get + "Content-Length: 47\r\n" + end + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n" + get + end, nil},
		"a length of nothing":          {get + "Content-Length: 0\r\n" + end + get + end, nil},
		"space around a length":        {get + "Content-Length: \t7 \r\n" + end + "1234567" + get + end, nil},
		"an encoding":                  {get + chunk + end + "5\r\nhello\r\n0\r\n\r\n" + get + end, nil},
		"what comes after one":         {get + chunk + end + "0\r\n\r\n" + get + "Content-Length: 1\r\n" + chunk + end, nil}, // never read
		"an empty value":               {get + "X-Empty:\r\n" + end, nil},
		"other names":                  {get + "Content-Lengths: x\r\nX-Content-Length: 4\r\nTransfer-Encodin: a\r\n" + end, nil},
		"a length, then an encoding":   {get + "Content-Length: 5\r\n" + chunk + end, errTwice},
		"an encoding, then a length":   {get + chunk + "Content-Length: 5\r\n" + end, errTwice},
		"in other letters":             {get + "cOnTeNt-LeNgTh: 5\r\nTRANSFER-ENCODING: chunked\r\n" + end, errTwice},
		"without a space":              {get + "content-length:5\r\ntransfer-encoding:chunked\r\n" + end, errTwice},
		"two encodings":                {get + chunk + chunk + end, errTwice},
		"two encodings, one of them x": {get + chunk + "Transfer-Encoding: x\r\n" + end, errTwice},
		"two lengths that agree":       {get + "Content-Length: 5\r\nContent-Length: 5\r\n" + end, errTwice},
		"a list of lengths":            {get + "Content-Length: 5, 5\r\n" + end, errLength},
		"a length with a sign":         {get + "Content-Length: +5\r\n" + end, errLength},
		"a length in hex":              {get + "Content-Length: 0x5\r\n" + end, errLength},
		"a length of two words":        {get + "Content-Length: 5 5\r\n" + end, errLength},
		"no length":                    {get + "Content-Length:\r\n" + end, errLength},
		"a length over an int64":       {get + "Content-Length: 9223372036854775808\r\n" + end, errLength},
		"a folded encoding":            {get + "Content-Length: 5\r\nTransfer-Encoding:\r\n chunked\r\n" + end, errTwice},
		"a folded header":              {get + "X-A: b\r\n\tContent-Length: 5\r\n" + end, errFolded},
		"folded at once":               {"GET / HTTP/1.1\r\n Host: a\r\n" + end, errFolded},
		"a bare line feed":             {get + "X-A: b\nContent-Length: 5\r\n" + end, errLineEnd},
		"a bare carriage return":       {get + "X-A: b\rContent-Length: 5\r\n" + end, errLineEnd},
		"two carriage returns":         {get + "X-A: b\r\r\n" + end, errLineEnd},
		"an encoding of HTTP/1.0":      {"GET / HTTP/1.0\r\nHost: a\r\n" + chunk + end, errEncoding},
		"an encoding of no version":    {"GET /\r\n" + chunk + end, errEncoding},
		"the second request":           {get + end + get + "Content-Length: 5\r\n" + chunk + end, errTwice},
		"the one after a body":         {get + "Content-Length: 5\r\n" + end + "hello" + get + chunk + "Content-Length: 5\r\n" + end, errTwice},
	} {
		t.Run(name, func(t *testing.T) {
			for _, piece := range []int{1, 2, 3, 7, len(c.sent)} {
				f := newFraming()
				if err := passed(&f, c.sent, piece); err != c.want {
					t.Errorf("in pieces of %d: %v, want %v", piece, err, c.want)
				}
			}
		})
	}
}

// passed has f see text, so many bytes at a time.
func passed(f *framing, text string, piece int) error {
	for len(text) > 0 {
		n := min(piece, len(text))
		if _, err := f.pass([]byte(text[:n])); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// FuzzFraming: in what passes, requests begin where net/http says that they do,
// up to the first whose body has an encoding.
func FuzzFraming(f *testing.F) {
	f.Add([]byte(get + end + get + "Content-Length: 5\r\n" + end + "hello" + get + chunk + end + "0\r\n\r\n"))
	f.Add([]byte(get + "Content-Length : 5\r\n" + end + "hello" + get + end))
	f.Add([]byte("\r\n" + get + end))
	f.Add([]byte(get + "\r\n\r\n" + get + end))
	f.Add([]byte("GET / HTTP/1.1\r\nContent-Length\t: 7\r\n\r\n" + get))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\nContent-Length\x00: 3\r\n\r\nabc"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		starts := map[int]bool{0: true}
		look, encoded := newFraming(), false
		for i := range sent {
			if _, err := look.pass(sent[i : i+1]); err != nil {
				return // refused: nothing more is served
			}
			encoded = encoded || look.phase == beyond
			starts[i+1] = !encoded && look == newFraming()
		}
		rest := bytes.NewReader(sent)
		reader := bufio.NewReader(rest)
		for {
			at := len(sent) - rest.Len() - reader.Buffered()
			r, err := http.ReadRequest(reader)
			if err != nil {
				return // 400, and the connection ends
			}
			if !starts[at] {
				t.Fatalf("a request at %d, which framing didn't see: %q", at, sent)
			}
			if len(r.TransferEncoding) > 0 {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return // cut off
			}
		}
	})
}

func BenchmarkFraming(b *testing.B) {
	head := []byte(get + strings.Repeat("X-Header-Of-A-Browser: with a value of some length; q=0.9\r\n", 8) + end)
	f := newFraming()
	b.SetBytes(int64(len(head)))
	for b.Loop() {
		if _, err := f.pass(head); err != nil {
			b.Fatal(err)
		}
	}
}
