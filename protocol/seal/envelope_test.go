package seal_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/seal"
)

var both = []int{seal.Version, seal.LaterVersion}

// TestEnvelopes: what is read, and how, of envelopes that no vector has.
func TestEnvelopes(t *testing.T) {
	const head = `{"protocol_version":1,"source_hostname":"h","sequence":1,`
	for name, c := range map[string]struct {
		plain string
		ok    bool
	}{
		"unknown members":              {head + `"cookies":[{"host_key":"h","top":{"x":[1]}}],"later":{"a":1}}`, true},
		"names of either case":         {`{"Protocol_Version":1,"SOURCE_HOSTNAME":"h","Sequence":1,"Cookies":[]}`, true},
		"a name twice":                 {`{"protocol_version":2,"protocol_version":1,"source_hostname":"h","sequence":1,"cookies":[]}`, true},
		"a sequence below zero":        {`{"protocol_version":1,"source_hostname":"h","sequence":-5,"cookies":[]}`, true},
		"no sequence":                  {`{"protocol_version":1,"source_hostname":"h","cookies":[]}`, false},
		"no cookies":                   {`{"protocol_version":1,"source_hostname":"h","sequence":1}`, false},
		"null for cookies":             {head + `"cookies":null}`, false},
		"null for cookies, version 2":  {`{"protocol_version":2,"source_hostname":"h","sequence":1,"cookies":null}`, true},
		"no hostname":                  {`{"protocol_version":1,"sequence":1,"cookies":[]}`, false},
		"an empty hostname":            {`{"protocol_version":1,"source_hostname":"","sequence":1,"cookies":[]}`, false},
		"a long hostname":              {`{"protocol_version":1,"source_hostname":"` + strings.Repeat("h", 256) + `","sequence":1,"cookies":[]}`, false},
		"a hostname of a MiB":          {`{"protocol_version":1,"source_hostname":"` + strings.Repeat("h", 1<<20) + `","sequence":1,"cookies":[]}`, false},
		"true for 1":                   {head + `"cookies":[{"is_secure":true}]}`, false},
		"an object for cookies":        {head + `"cookies":{}}`, false},
		"a number among cookies":       {head + `"cookies":[1]}`, false},
		"something behind it":          {head + `"cookies":[]} {}`, false},
		"a byte order mark":            {"\ufeff" + head + `"cookies":[]}`, false},
		"version 1.5":                  {`{"protocol_version":1.5,"source_hostname":"h","sequence":1,"cookies":[]}`, false},
		"a version that is 1 in 32 b":  {`{"protocol_version":4294967297,"source_hostname":"h","sequence":1,"cookies":[]}`, false},
		"nothing":                      {``, false},
		"an array":                     {`[]`, false},
		"cut in the middle of cookies": {head + `"cookies":[{"name":"s`, false},
	} {
		e, err := seal.Decode([]byte(c.plain), both)
		if (err == nil) != c.ok || err != nil && protocol.KindOf(err) != protocol.KindInvalid {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
		if c.ok && e.SourceHostname != "h" {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// TestSecondArray: nothing of the first one is left.
func TestSecondArray(t *testing.T) {
	e, err := seal.Decode([]byte(`{"protocol_version":1,"source_hostname":"h","sequence":1,"cookies":[{"host_key":"a","value":"x"},{"host_key":"b"}],"COOKIES":[{"name":"n"}]}`), both)
	if want := []seal.Cookie{{Name: "n"}}; err != nil || !reflect.DeepEqual(e.Cookies, want) {
		t.Errorf("%+v, %v", e.Cookies, err)
	}
}

// TestLaterMembers are named, and not kept; those of a MiB cost nothing.
func TestLaterMembers(t *testing.T) {
	e, err := seal.Decode([]byte(`{"protocol_version":2,"source_hostname":"h","sequence":1,"cookies":[],"local_storage_tarball":"`+
		strings.Repeat("A", 1<<20)+`","indexed_db_tarball":"","indexed_db_skipped":["x"],"secrets":{"cli":{"KEY":"canary"}}}`), both)
	if want := []string{"local_storage_tarball", "indexed_db_skipped", "secrets"}; err != nil || !reflect.DeepEqual(e.Ignored, want) {
		t.Errorf("%v, %v", e.Ignored, err)
	}
}

func TestTooManyCookies(t *testing.T) {
	of := func(n int) error {
		_, err := seal.Decode([]byte(`{"protocol_version":1,"source_hostname":"h","sequence":1,"cookies":[{}`+strings.Repeat(`,{}`, n-1)+`]}`), both)
		return err
	}
	if err := of(seal.MaxCookies); err != nil {
		t.Error(err)
	}
	if err := of(seal.MaxCookies + 1); protocol.KindOf(err) != protocol.KindInvalid || !strings.Contains(err.Error(), "cookies") {
		t.Error(err)
	}
}

// TestRoundTrip: what is encoded is read as it was, and nothing in an error is a value.
func TestRoundTrip(t *testing.T) {
	want := seal.Envelope{Version: 1, SourceHostname: "h", Sequence: 1<<63 - 1, Complete: true, Cookies: []seal.Cookie{{
		HostKey: ".x.test", Name: "n", Value: "ü\"<>&\u2028", Path: "/", Expires: seal.ToMicros(time.Date(2027, 1, 2, 3, 4, 5, 6000, time.UTC)),
		Secure: 1, HTTPOnly: 1, HasExpires: 1, Persistent: 1, Priority: 2, SameSite: -1, SourceScheme: 2, SourcePort: 8443,
	}}}
	plain, err := want.Encode()
	must(t, err)
	got, err := seal.Decode(plain, both)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := seal.Decode([]byte(`{"protocol_version":1,"sequence":"canary","source_hostname":"canary"}`), both); err == nil || strings.Contains(err.Error(), "canary") {
		t.Error(err)
	}
	empty, err := seal.Envelope{Version: 1, SourceHostname: "h"}.Encode()
	if err != nil || !strings.Contains(string(empty), `"cookies":[]`) {
		t.Errorf("%s %v", empty, err)
	}
}

func TestMicros(t *testing.T) {
	for _, c := range []struct {
		m    seal.Micros
		want time.Time
	}{
		{0, time.Time{}},
		{11_644_473_600_000_000, time.Unix(0, 0).UTC()},
		{13_390_000_000_000_001, time.UnixMicro(1_745_526_400_000_001).UTC()},
		{1, time.Date(1601, 1, 1, 0, 0, 0, 1000, time.UTC)},
	} {
		if got := c.m.Time(); !got.Equal(c.want) || seal.ToMicros(got) != c.m {
			t.Errorf("%d: %v, %d", c.m, got, seal.ToMicros(got))
		}
	}
	for _, m := range []seal.Micros{-1 << 63, 1<<63 - 1} {
		if y := m.Time().Year(); (m > 0) != (y > 1601) {
			t.Errorf("%d is in %d", m, y)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, v := range vectors(f).Vectors {
		f.Add([]byte(v.Plain))
	}
	f.Add([]byte(`{"protocol_version":2,"source_hostname":"h","sequence":1,"cookies":[{}],"cookies":null,"secrets":{}}`))
	f.Fuzz(func(t *testing.T, plain []byte) {
		e, err := seal.Decode(plain, both)
		if err != nil {
			if protocol.KindOf(err) != protocol.KindInvalid {
				t.Error(err)
			}
			return
		}
		again, err := e.Encode()
		must(t, err)
		got, err := seal.Decode(again, both)
		got.Ignored = e.Ignored
		if e.Cookies == nil {
			e.Cookies = got.Cookies
		}
		if err != nil || !reflect.DeepEqual(got, e) {
			t.Errorf("%+v, then %+v, %v", e, got, err)
		}
	})
}
