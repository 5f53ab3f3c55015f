package tools

import (
	"context"
	"errors"
	"io"
	"path"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/toolbox"
	"github.com/fairlead/fairlead/sandbox-agent/internal/workspace"
)

// A Masker masks secrets in a stream, as redact.Stream does.
type Masker interface {
	Write(dst, p []byte) []byte
	Flush(dst []byte) []byte
}

// masked reads what a Masker makes of another reader.
type masked struct {
	from   io.Reader
	masker Masker
	in     []byte
	out    []byte // what out[at:] holds is to be read
	at     int
	err    error
}

func (m *masked) Read(p []byte) (int, error) {
	for m.at == len(m.out) {
		if m.err != nil {
			return 0, m.err
		}
		m.at, m.out = 0, m.out[:0]
		var n int
		n, m.err = m.from.Read(m.in)
		m.out = m.masker.Write(m.out, m.in[:n])
		if errors.Is(m.err, io.EOF) {
			m.out = m.masker.Flush(m.out)
		}
	}
	n := copy(p, m.out[m.at:])
	m.at += n
	return n, nil
}

// A patient reads until its context ends.
type patient struct {
	ctx  context.Context
	from io.Reader
}

func (p *patient) Read(b []byte) (int, error) {
	if p.ctx.Err() != nil {
		return 0, protocol.Errorf(protocol.KindUnavailable, "there was not enough time")
	}
	return p.from.Read(b)
}

// content reads f as caller may see it.
func (s *Files) content(ctx context.Context, caller toolbox.Caller, f *workspace.File) (r io.Reader, isMasked bool) {
	r = &patient{ctx, f}
	if !s.secret(caller, f.Name, f.Info.Name) || s.Redact == nil {
		return r, false
	}
	return &masked{from: r, masker: s.Redact(), in: make([]byte, 32<<10)}, true
}

// secret reports whether a file of one of the names is masked for caller.
func (s *Files) secret(caller toolbox.Caller, names ...string) bool {
	if caller.Allows("", protocol.CapEnv) {
		return false
	}
	for _, name := range names {
		if s.marked(name) {
			return true
		}
	}
	return false
}

func (s *Files) marked(name string) bool {
	if s.Marked == nil {
		return true
	}
	for _, pattern := range s.Marked {
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return false
}
