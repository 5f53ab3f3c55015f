package tunnel_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/fairlead/fairlead/tunnel"
)

// sizes notes how large the reads are that it is asked for.
type sizes struct {
	io.Reader
	asked []int
}

func (s *sizes) Read(p []byte) (int, error) {
	s.asked = append(s.asked, len(p))
	return s.Reader.Read(p)
}

// TestCopy: all is copied whatever the pieces are, with an error of either end as it
// is, and with a large buffer only while much comes.
func TestCopy(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", 1<<16)
	broken := errors.New("broken")
	for name, from := range map[string]io.Reader{
		"at once": strings.NewReader(long), "by byte": iotest.OneByteReader(strings.NewReader(long)),
		"halves": iotest.HalfReader(strings.NewReader(long)), "end with data": iotest.DataErrReader(strings.NewReader(long)),
	} {
		var to bytes.Buffer
		if n, err := tunnel.Copy(&to, from); n != int64(len(long)) || err != nil || to.String() != long {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
	from := &sizes{Reader: io.MultiReader(strings.NewReader("a"), strings.NewReader(long), iotest.OneByteReader(strings.NewReader("bcd")))}
	if n, err := tunnel.Copy(io.Discard, from); n != int64(len(long)+4) || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	first, last := from.asked[0], from.asked[len(from.asked)-1]
	if most := max(first, last); most >= 64<<10 || len(from.asked) > 20 {
		t.Errorf("reads of %v", from.asked)
	}
	if n, err := tunnel.Copy(io.Discard, io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken))); n != 3 || !errors.Is(err, broken) {
		t.Errorf("a broken reader: %d, %v", n, err)
	}
	if n, err := tunnel.Copy(iotest.TruncateWriter(io.Discard, 0), strings.NewReader("abc")); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	r, w := io.Pipe()
	r.CloseWithError(broken)
	if _, err := tunnel.Copy(w, strings.NewReader("abc")); !errors.Is(err, broken) {
		t.Errorf("a broken writer: %v", err)
	}
}
