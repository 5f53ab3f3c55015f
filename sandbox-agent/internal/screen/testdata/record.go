//go:build ignore

// Record writes what a program prints on a terminal to NAME.bin.gz, and the
// terminal's sizes to NAME.size, for the tests of package screen:
//
//	go run record.go -o streams/vim -size 80x24 'vim demo.go' '300 iHello' '200 \x1b' '@100x30' '200 :q!\r'
//
// After the command come what is done to it: a pause in milliseconds and what
// is then typed, in Go's notation, or @ and a new size. A line of NAME.size is
// an offset in the output, from where on the columns and rows that follow
// apply.
package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/creack/pty"
)

// What programs ask a terminal, and what this one says.
var answers = map[string]string{
	"\x1b[c":            "\x1b[?62;22c",
	"\x1b[0c":           "\x1b[?62;22c",
	"\x1b[>c":           "\x1b[>0;276;0c",
	"\x1b[6n":           "\x1b[1;1R",
	"\x1b[5n":           "\x1b[0n",
	"\x1b]11;?\a":       "\x1b]11;rgb:0c0c/1010/1414\a",
	"\x1b]11;?\x1b\\":   "\x1b]11;rgb:0c0c/1010/1414\x1b\\",
	"\x1b[?2026$p":      "\x1b[?2026;2$y",
	"\x1bP+q544e\x1b\\": "\x1bP0+r\x1b\\",
}

var patience = flag.Duration("patience", 5*time.Second, "how long to wait for the program's end before it is killed")

type recording struct {
	mu     sync.Mutex
	output bytes.Buffer
	sizes  strings.Builder
}

func main() {
	name := flag.String("o", "stream", "name of the files, without their suffixes")
	size := flag.String("size", "80x24", "columns x rows at the start")
	flag.Parse()
	if flag.NArg() == 0 {
		log.Fatal("which command?")
	}
	if err := record(*name, *size, flag.Arg(0), flag.Args()[1:]); err != nil {
		log.Fatal(err)
	}
}

func record(name, size, command string, actions []string) error {
	r := new(recording)
	cmd := exec.Command("sh", "-c", command)
	ws, err := r.resized(size)
	if err != nil {
		return err
	}
	tty, err := pty.StartWithSize(cmd, ws)
	if err != nil {
		return err
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		r.read(tty)
	}()
	for _, action := range actions {
		if err := r.act(tty, action); err != nil {
			return err
		}
	}
	late := time.AfterFunc(*patience, func() { cmd.Process.Kill() })
	cmd.Wait() // its status is its own affair
	late.Stop()
	tty.Close()
	<-read
	return r.save(name)
}

// resized notes a size from here on.
func (r *recording) resized(size string) (*pty.Winsize, error) {
	var cols, rows uint16
	if _, err := fmt.Sscanf(size, "%dx%d", &cols, &rows); err != nil {
		return nil, fmt.Errorf("size %q: %w", size, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(&r.sizes, r.output.Len(), cols, rows)
	return &pty.Winsize{Cols: cols, Rows: rows}, nil
}

func (r *recording) act(tty *os.File, action string) error {
	if size, ok := strings.CutPrefix(action, "@"); ok {
		time.Sleep(300 * time.Millisecond)
		ws, err := r.resized(size)
		if err != nil {
			return err
		}
		return pty.Setsize(tty, ws)
	}
	pause, keys, _ := strings.Cut(action, " ")
	ms, err := strconv.Atoi(pause)
	if err != nil {
		return fmt.Errorf("action %q: %w", action, err)
	}
	time.Sleep(time.Duration(ms) * time.Millisecond)
	keys, err = strconv.Unquote(`"` + strings.ReplaceAll(keys, `"`, `\"`) + `"`)
	if err != nil {
		return fmt.Errorf("action %q: %w", action, err)
	}
	_, err = io.WriteString(tty, keys)
	if errors.Is(err, os.ErrClosed) || strings.Contains(fmt.Sprint(err), "input/output error") {
		return nil // the program has ended by itself
	}
	return err
}

func (r *recording) read(tty *os.File) {
	buf := make([]byte, 1<<16)
	for {
		n, err := tty.Read(buf)
		r.mu.Lock()
		r.output.Write(buf[:n])
		r.mu.Unlock()
		for query, answer := range answers {
			for range bytes.Count(buf[:n], []byte(query)) {
				io.WriteString(tty, answer)
			}
		}
		if err != nil {
			return
		}
	}
}

func (r *recording) save(name string) error {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(r.output.Bytes()); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := os.WriteFile(name+".bin.gz", packed.Bytes(), 0o644); err != nil {
		return err
	}
	fmt.Println(name, r.output.Len(), "bytes,", packed.Len(), "packed")
	return os.WriteFile(name+".size", []byte(r.sizes.String()), 0o644)
}
