// Package passwd gives the users of terminals entries in the system's list of
// users, which ssh, git and whoami look them up in. It touches no line but its
// own.
package passwd

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

const (
	prefix = "sandbox-"          // of names; the uid follows
	remark = "fairlead terminal" // in the field for a person's full name: by this and the name a line is ours
)

// An Entry is a terminal's user.
type Entry struct {
	UID, GID    int
	Home, Shell string
}

// Name returns the user's name.
func (e Entry) Name() string { return prefix + strconv.Itoa(e.UID) }

// line returns e as a line. No password fits it.
func (e Entry) line() (string, error) {
	for _, field := range []string{e.Home, e.Shell} {
		if strings.ContainsAny(field, ":\n\x00") {
			return "", fmt.Errorf("%q can't stand in a list of users", field)
		}
	}
	return fmt.Sprintf("%s:*:%d:%d:%s:%s:%s\n", e.Name(), e.UID, e.GID, remark, e.Home, e.Shell), nil
}

// uidOf returns the uid of a line that is ours.
func uidOf(line []byte) (uid int, ours bool) {
	fields := strings.Split(strings.TrimSuffix(string(line), "\n"), ":")
	if len(fields) != 7 || fields[4] != remark {
		return 0, false
	}
	uid, err := strconv.Atoi(fields[2])
	return uid, err == nil && fields[0] == Entry{UID: uid}.Name()
}

// owned returns the uids that text has lines of ours for.
func owned(text []byte) (uids []int) {
	for line := range bytes.Lines(text) {
		if uid, ours := uidOf(line); ours {
			uids = append(uids, uid)
		}
	}
	return uids
}

// without returns text without our lines for uid. Every other byte stays.
func without(text []byte, uid int) []byte {
	var rest []byte
	for line := range bytes.Lines(text) {
		if of, ours := uidOf(line); !ours || of != uid {
			rest = append(rest, line...)
		}
	}
	return rest
}

// with returns text with e, instead of an earlier line of ours for its uid. A
// last line without an end stays the last. It fails where somebody else has the
// uid or the name: whoever looks it up finds them.
func with(text []byte, e Entry) ([]byte, error) {
	line, err := e.line()
	if err != nil {
		return nil, err
	}
	text = without(text, e.UID)
	for other := range bytes.Lines(text) {
		fields := strings.SplitN(string(other), ":", 4)
		if len(fields) == 4 && (fields[0] == e.Name() || fields[2] == strconv.Itoa(e.UID)) {
			return nil, fmt.Errorf("uid %d, or the name %s, is %s's already", e.UID, e.Name(), fields[0])
		}
	}
	at := bytes.LastIndexByte(text, '\n') + 1
	return append(append(text[:at:at], line...), text[at:]...), nil
}
