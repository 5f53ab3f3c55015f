package seal

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol"
)

const (
	// Version is the one that seed 004 has.
	Version = 1
	// LaterVersion is the one that today's sources send: tarballs and secrets beside
	// the cookies.
	LaterVersion = 2

	// MaxHostname bounds a source's hostname, in bytes.
	MaxHostname = 255
	// MaxCookies bounds the cookies of an envelope: one of 2 bytes would take a
	// hundred times that in memory.
	MaxCookies = 100_000
)

// An Envelope is what a source sends: all the cookies that it has, by intention.
type Envelope struct {
	Version        int      `json:"protocol_version"`
	SourceHostname string   `json:"source_hostname"` // a name for Sequence, not who sent it
	Sequence       int64    `json:"sequence"`        // greater than the last one of that name
	Cookies        []Cookie `json:"cookies"`
	// Complete says that what isn't among Cookies is to go. Only our own sources say
	// so: the seed adds and replaces, and nothing more.
	Complete bool `json:"complete,omitempty"`
	// Ignored names the members that this sink has no use for.
	Ignored []string `json:"-"`
}

// A Cookie is as Chromium's database has it.
type Cookie struct {
	HostKey      string `json:"host_key"` // with a leading dot: of subdomains, too
	Name         string `json:"name"`
	Value        string `json:"value"` // decrypted
	Path         string `json:"path"`
	Expires      Micros `json:"expires_utc"`
	Secure       int64  `json:"is_secure"` // 0 or 1, as the following ones
	HTTPOnly     int64  `json:"is_httponly"`
	LastAccess   Micros `json:"last_access_utc"`
	HasExpires   int64  `json:"has_expires"`
	Persistent   int64  `json:"is_persistent"`
	Priority     int64  `json:"priority"`      // 0 low, 1 medium, 2 high
	SameSite     int64  `json:"samesite"`      // -1 not said, 0 None, 1 Lax, 2 Strict
	SourceScheme int64  `json:"source_scheme"` // 0 not known, 1 plain, 2 secure
	SourcePort   int64  `json:"source_port"`   // -1 not said
}

// Micros is a time of Chromium's: microseconds since the year 1601. 0 is none.
type Micros int64

// unixEpoch is 1970 in Micros.
const unixEpoch Micros = 11_644_473_600_000_000

// ToMicros returns t, whose years Chromium's database can hold; 0 for the zero time.
func ToMicros(t time.Time) Micros {
	if t.IsZero() {
		return 0
	}
	return Micros(t.UnixMicro()) + unixEpoch
}

// Time returns m; the zero time for 0.
func (m Micros) Time() time.Time {
	if m == 0 {
		return time.Time{}
	}
	const second = 1_000_000
	return time.Unix(int64(m/second-unixEpoch/second), int64(m%second)*1000).UTC()
}

// Encode returns the envelope as it is sealed.
func (e Envelope) Encode() ([]byte, error) {
	if e.Cookies == nil {
		e.Cookies = []Cookie{} // null isn't an array
	}
	return json.Marshal(e)
}

// Decode reads what was sealed, of one of the versions. Unknown members are ignored:
// the seed adds optional ones without another version. Types are strict; names are of
// either case, and of two members with one name the later one counts, as in the
// programs that exist. All four of the seed's members must be there, but for the
// cookies of version 2, which may be secrets alone. Decode fails with kind invalid,
// and its error repeats no value.
func Decode(plain []byte, versions []int) (Envelope, error) {
	return DecodeInSteps(plain, versions, noSteps{})
}

// Steps are of long work by somebody who shares a processor with others.
type Steps interface {
	// Next is called between two cookies.
	Next()
}

type noSteps struct{}

func (noSteps) Next() {}

// DecodeInSteps is Decode in steps.
func DecodeInSteps(plain []byte, versions []int, steps Steps) (Envelope, error) {
	var in struct {
		Version        int64    `json:"protocol_version"`
		SourceHostname string   `json:"source_hostname"`
		Sequence       *int64   `json:"sequence"`
		Cookies        cookies  `json:"cookies"`
		Complete       bool     `json:"complete"`
		LocalStorage   presence `json:"local_storage_tarball"`
		IndexedDB      presence `json:"indexed_db_tarball"`
		Skipped        presence `json:"indexed_db_skipped"`
		Secrets        presence `json:"secrets"`
	}
	in.Cookies.steps = steps
	if err := json.Unmarshal(plain, &in); err != nil {
		if _, ours := errors.AsType[*protocol.Error](err); ours {
			return Envelope{}, err
		}
		return Envelope{}, protocol.Errorf(protocol.KindInvalid, "the envelope is malformed")
	}
	if !slices.Contains(versions, int(in.Version)) {
		return Envelope{}, protocol.Errorf(protocol.KindInvalid, "the envelope has version %d, and this pairing takes %v", in.Version, versions)
	}
	e := Envelope{
		Version: int(in.Version), SourceHostname: in.SourceHostname, Cookies: in.Cookies.list, Complete: in.Complete,
	}
	switch {
	case in.SourceHostname == "" || len(in.SourceHostname) > MaxHostname || !utf8.ValidString(in.SourceHostname):
		return Envelope{}, protocol.Errorf(protocol.KindInvalid, "source_hostname: 1 to %d bytes", MaxHostname)
	case in.Sequence == nil:
		return Envelope{}, protocol.Errorf(protocol.KindInvalid, "the envelope has no sequence")
	case !in.Cookies.there && in.Version == Version:
		return Envelope{}, protocol.Errorf(protocol.KindInvalid, "the envelope has no cookies")
	}
	e.Sequence = *in.Sequence
	for _, member := range []struct {
		name string
		presence
	}{
		{"local_storage_tarball", in.LocalStorage}, {"indexed_db_tarball", in.IndexedDB},
		{"indexed_db_skipped", in.Skipped}, {"secrets", in.Secrets},
	} {
		if member.presence {
			e.Ignored = append(e.Ignored, member.name)
		}
	}
	return e, nil
}

// cookies reads an array one by one, so that too many of them cost nothing.
type cookies struct {
	list  []Cookie
	there bool
	steps Steps
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *cookies) UnmarshalJSON(data []byte) error {
	*c = cookies{steps: c.steps} // of two arrays the later one counts
	if string(data) == "null" {
		return nil
	}
	c.there = true
	decoder := json.NewDecoder(bytes.NewReader(data))
	if open, err := decoder.Token(); err != nil || open != json.Delim('[') {
		return errNoArray
	}
	for decoder.More() {
		c.steps.Next()
		if len(c.list) == MaxCookies {
			return protocol.Errorf(protocol.KindInvalid, "more than %d cookies", MaxCookies)
		}
		var cookie Cookie
		if err := decoder.Decode(&cookie); err != nil {
			return err
		}
		c.list = append(c.list, cookie)
	}
	return nil
}

var errNoArray = protocol.Errorf(protocol.KindInvalid, "cookies: not an array")

// presence notes that a member is there, and holds nothing.
type presence bool

// UnmarshalJSON implements [json.Unmarshaler].
func (p *presence) UnmarshalJSON(data []byte) error {
	*p = string(data) != "null" && string(data) != `""`
	return nil
}
