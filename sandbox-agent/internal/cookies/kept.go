package cookies

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/fairlead/fairlead/deploy/program"
	"github.com/fairlead/fairlead/protocol/seal"
)

const (
	// maxKept bounds the cookies that are kept of a pairing: as many as an envelope
	// may have. Beyond it, or beyond maxKeptBytes of text, those go that were pushed
	// longest ago.
	maxKept      = seal.MaxCookies
	maxKeptBytes = 64 << 20
)

// A kept cookie is a line of a set's file.
type kept struct {
	Push   int64       `json:"push"` // that brought it: of two pairings' the later one counts
	Cookie seal.Cookie `json:"cookie"`
}

// A keptSet is the cookies of one pairing: lines of a file, the latest push first.
// They are what the session's Chromium has by that pairing.
type keptSet struct {
	path string
	most int // cookies, maxKept but in tests
}

// A summary is what is known of a set without reading it.
type summary struct {
	sites   map[string]int // cookies by site
	cookies int
	bytes   int64
	push    int64 // the latest one
}

func (s *summary) room(c seal.Cookie, most int) bool {
	return s.cookies < most && s.bytes+size(c) <= maxKeptBytes
}

func (s *summary) add(k kept) {
	if s.sites == nil {
		s.sites = map[string]int{}
	}
	s.sites[site(k.Cookie)]++
	s.cookies++
	s.bytes += size(k.Cookie)
	s.push = max(s.push, k.Push)
}

func size(c seal.Cookie) int64 {
	const others = 160 // what the numbers and names of members take
	return int64(len(c.HostKey)+len(c.Name)+len(c.Value)+len(c.Path)) + others
}

// site is what people call a cookie's host.
func site(c seal.Cookie) string { return strings.TrimPrefix(c.HostKey, ".") }

// each calls do with the cookies. Without a file there are none.
func (s keptSet) each(do func(kept) error) error {
	f, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := json.NewDecoder(bufio.NewReader(f))
	for work := new(steps); ; work.Next() {
		var k kept
		switch err := lines.Decode(&k); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := do(k); err != nil {
			return err
		}
	}
}

// summary reads the set.
func (s keptSet) summary() (sum summary, err error) {
	err = s.each(func(k kept) error {
		sum.add(k)
		return nil
	})
	return sum, err
}

// rewrite puts fresh cookies into the set, in place of those that have the same ids,
// and takes out what stays refuses or there is no room for: it returns the ids of
// those. Readers have the old set or the new one.
func (s keptSet) rewrite(fresh batch, push int64, stays func(seal.Cookie) bool) (sum summary, gone []seal.CookieID, err error) {
	err = program.ReplaceFileBy(s.path, 0o600, func(w io.Writer) error {
		lines := json.NewEncoder(w)
		work := new(steps)
		put := func(k kept) error {
			work.Next()
			sum.add(k)
			return lines.Encode(k)
		}
		for _, c := range fresh.cookies {
			if err := put(kept{push, c}); err != nil {
				return err
			}
		}
		return s.each(func(old kept) error {
			id := old.Cookie.ID()
			if _, replaced := fresh.index[id]; replaced {
				return nil
			}
			if !stays(old.Cookie) || !sum.room(old.Cookie, s.most) {
				gone = append(gone, id)
				return nil
			}
			return put(old)
		})
	})
	return sum, gone, err
}

// A batch is cookies with different ids.
type batch struct {
	cookies []seal.Cookie
	index   map[seal.CookieID]int // in cookies
}

// put adds a cookie, or puts it in place of the one with its id.
func (b *batch) put(c seal.Cookie) (replaced bool) {
	if b.index == nil {
		b.index = map[seal.CookieID]int{}
	}
	i, known := b.index[c.ID()]
	if known {
		b.cookies[i] = c
		return true
	}
	b.index[c.ID()] = len(b.cookies)
	b.cookies = append(b.cookies, c)
	return false
}
