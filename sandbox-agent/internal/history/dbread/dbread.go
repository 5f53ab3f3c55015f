// Package dbread reads the databases in which coding agents' programs keep their
// sessions, each in a process of its own that has no more rights than the user of
// the home: a database may be anything, and lead anywhere.
package dbread

import (
	"cmp"
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/fairlead/fairlead/sandbox-agent/internal/history/rows"
	"github.com/fairlead/fairlead/sandbox-agent/internal/process/helper"
)

// Bounds of what is read.
const (
	// MaxSessions bounds the sessions of one database: the latest are read.
	MaxSessions = 2000
	// MaxContent bounds what is read of one session, in bytes: the end is.
	MaxContent = 32 << 20

	maxValue  = 8 << 20        // bytes of one value
	maxAnswer = 2 * MaxContent // bytes that a process may print
	maxMemory = 1 << 30        // bytes of memory of a process
	maxWhy    = 300            // bytes of why it has failed

	// DefaultPatience is how long a process may take.
	DefaultPatience = 5 * time.Second
)

// A Format is how a program keeps sessions.
type Format string

// The formats.
const (
	Opencode Format = "opencode" // one database for all sessions of a home
	Cursor   Format = "cursor"   // one for each session
)

// A File is a database in a home.
type File struct {
	Format Format
	Home   string // absolute
	Name   string // in Home
}

// A Session is one that a database tells of.
type Session struct {
	ID      string        `json:"id"`     // "": that of the folder
	Parent  string        `json:"parent"` // "": it is no subagent's
	Dir     string        `json:"dir"`    // "": it isn't said
	Title   string        `json:"title"`
	Updated int64         `json:"updated"`        // Unix milliseconds; 0: it isn't said
	Head    []rows.Stored `json:"head,omitempty"` // the first messages, where there is no list of titles
}

// A Reader reads databases. It is safe for concurrent use.
type Reader struct {
	// Command starts a process that calls [Serve]. Any user can run it.
	Command  []string
	Patience time.Duration // default DefaultPatience
	Content  int           // instead of MaxContent
}

// A request is what a process is asked to do.
type request struct {
	Format  Format `json:"format"`
	Do      string `json:"do"`
	Name    string `json:"name"`
	Session string `json:"session,omitempty"`
	Content budget `json:"content"`

	Patience time.Duration `json:"patience"`
}

const (
	doList   = "sessions"
	doRead   = "messages"
	doDelete = "delete"
)

// An answer is what it prints.
type answer struct {
	Sessions []Session     `json:"sessions,omitempty"`
	Messages []rows.Stored `json:"messages,omitempty"`
	Error    string        `json:"error,omitempty"`
}

// Sessions returns the sessions of a database.
func (r Reader) Sessions(ctx context.Context, file File) ([]Session, error) {
	a, err := r.ask(ctx, file, request{Do: doList})
	return a.Sessions, err
}

// Messages returns the messages of a session, in their order.
func (r Reader) Messages(ctx context.Context, file File, session string) ([]rows.Stored, error) {
	a, err := r.ask(ctx, file, request{Do: doRead, Session: session})
	return a.Messages, err
}

// Delete deletes a session from a database that has others.
func (r Reader) Delete(ctx context.Context, file File, session string) error {
	_, err := r.ask(ctx, file, request{Do: doDelete, Session: session})
	return err
}

// ask has a process of the home's user do something.
func (r Reader) ask(ctx context.Context, file File, q request) (a answer, err error) {
	q.Format, q.Name = file.Format, file.Name
	q.Patience, q.Content = cmp.Or(r.Patience, DefaultPatience), budget(cmp.Or(r.Content, MaxContent))
	home, err := os.Lstat(file.Home)
	if err != nil {
		return a, err
	}
	h := helper.Helper{Command: r.Command, Dir: file.Home, Patience: q.Patience, MaxMemory: maxMemory / 2, MaxAnswer: maxAnswer}
	if owner, ok := home.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Geteuid() {
		h.User = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	err = h.Ask(ctx, q, &a)
	if err == nil && a.Error != "" {
		err = errors.New(a.Error)
	}
	return a, err
}

// A budget bounds the bytes of a content.
type budget int

// errFull ends the reading of a content: the end of it has been read.
var errFull = errors.New("the content is longer than what is read")

func (b *budget) take(n int) error {
	if *b -= budget(n); *b < 0 {
		return errFull
	}
	return nil
}
