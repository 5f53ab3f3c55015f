package standin

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A process is what a stand-in has of the operating system.
type process struct {
	// Static after construction.
	args []string
	dir  string // where it works, without symbolic links
	home string
	in   io.Reader
	err  io.Writer

	mu  sync.Mutex
	out io.Writer // guarded by mu
}

func newProcess(args []string) *process {
	dir, _ := os.Getwd() // "" where it is gone
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return &process{args: args, dir: dir, home: os.Getenv("HOME"), in: os.Stdin, out: os.Stdout, err: os.Stderr}
}

// print writes v as one line of JSON, at once.
func (p *process) print(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		panic("standin: " + err.Error()) // of a value made here
	}
	p.write(append(line, '\n'))
}

// write writes bytes to the output. A reader that is gone ends the process by
// SIGPIPE, as it does others.
func (p *process) write(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = p.out.Write(b)
}

// flag returns the value of an argument "--name value" or "--name=value"; ok
// reports whether there is one.
func (p *process) flag(names ...string) (value string, ok bool) {
	for i, arg := range p.args {
		for _, name := range names {
			if v, found := strings.CutPrefix(arg, name+"="); found {
				return v, true
			}
			if arg == name && i+1 < len(p.args) {
				return p.args[i+1], true
			}
			if arg == name {
				return "", true
			}
		}
	}
	return "", false
}

// has reports whether an argument is given.
func (p *process) has(names ...string) bool {
	_, ok := p.flag(names...)
	return ok
}

// now is the time as programs write it into transcripts.
func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z") }

// newUUID returns a random UUID.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
