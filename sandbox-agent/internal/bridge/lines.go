package bridge

import (
	"bufio"
	"context"
	"errors"
	"io"
)

// A line is one of the program's, without its end.
type line struct {
	text []byte
	over bool // it is longer than a line may be; text is its beginning
}

// readLines sends r's lines of at most limit bytes to out, and closes out when r
// ends or ctx does.
func readLines(ctx context.Context, r io.Reader, limit int, out chan<- line) {
	defer close(out)
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		text, over, err := readLine(in, limit)
		if len(text) > 0 || err == nil {
			select {
			case out <- line{text, over}:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// readLine reads one line, of which it keeps limit bytes. It may return the last
// one together with an error.
func readLine(in *bufio.Reader, limit int) (text []byte, over bool, err error) {
	for {
		part, err := in.ReadSlice('\n')
		ended := err == nil
		if ended {
			part = part[:len(part)-1]
		}
		if room := limit - len(text); len(part) > room {
			part, over = part[:room], true
		}
		text = append(text, part...)
		if ended || !errors.Is(err, bufio.ErrBufferFull) {
			return text, over, err
		}
	}
}
