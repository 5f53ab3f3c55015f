package devstack

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestIdentity: it is kept, and completed when more is wanted.
func TestIdentity(t *testing.T) {
	dir := t.TempDir()
	first, err := loadIdentity(dir, 1, 1, 0)
	must(t, err)
	again, err := loadIdentity(dir, 1, 1, 0)
	must(t, err)
	if !reflect.DeepEqual(first, again) {
		t.Errorf("%+v became %+v", first, again)
	}
	more, err := loadIdentity(dir, 2, 3, 0)
	must(t, err)
	if len(more.Relays) != 2 || len(more.Sandboxes) != 3 || more.Relays[0] != first.Relays[0] || more.Sandboxes[0] != first.Sandboxes[0] {
		t.Errorf("%+v was completed to %+v", first, more)
	}
	fewer, err := loadIdentity(dir, 1, 1, 0)
	must(t, err)
	if !reflect.DeepEqual(more, fewer) {
		t.Errorf("with fewer, %+v became %+v", more, fewer)
	}
	ids := map[string]bool{}
	for _, sb := range more.Sandboxes {
		for _, id := range []string{string(sb.ID), string(sb.Session), sb.Dashboard} {
			if ids[id] {
				t.Errorf("%s is used twice", id)
			}
			ids[id] = true
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "identity.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestPeople: more members come after the three of every stack, and stay who
// they are.
func TestPeople(t *testing.T) {
	dir := t.TempDir()
	first, err := loadIdentity(dir, 1, 1, 2)
	must(t, err)
	more, err := loadIdentity(dir, 1, 1, 12)
	must(t, err)
	fewer, err := loadIdentity(dir, 1, 1, 0)
	must(t, err)
	if len(first.Users) != 5 || !reflect.DeepEqual(more.Users[:5], first.Users) || !reflect.DeepEqual(fewer, more) {
		t.Errorf("%+v, then %+v, then %+v", first.Users, more.Users, fewer.Users)
	}
	if u := more.Users[14]; u.Name != "p12" || u.Role != "viewer" {
		t.Errorf("the last one is %+v", u)
	}
}

func TestSpoiltIdentity(t *testing.T) {
	dir := t.TempDir()
	_, err := loadIdentity(dir, 1, 1, 0)
	must(t, err)
	path := filepath.Join(dir, "identity.json")
	good, err := os.ReadFile(path)
	must(t, err)
	for what, text := range map[string]string{
		"empty":           "",
		"null":            "null",
		"not JSON":        "{",
		"nothing in it":   "{}",
		"something after": string(good) + "{}",
		"no alice":        strings.Replace(string(good), `"alice"`, `"mallory"`, 1),
		"another role":    strings.Replace(string(good), `"owner"`, `"viewer"`, 1),
		"a bad id":        strings.Replace(string(good), `"sb_`, `"sb `, 1),
		"a short token":   strings.Replace(string(good), `"token": "`, `"token": "x", "old": "`, 1),
		"a stranger":      strings.Replace(string(good), `"carol"`, `"p1"`, 1),
		"no secret":       strings.Replace(string(good), `"secret": "`, `"secret": "", "name": "`, 1),
	} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		if _, err := loadIdentity(dir, 1, 1, 0); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", what, err)
		}
		if kept, err := os.ReadFile(path); err != nil || string(kept) != text {
			t.Errorf("%s: the file was changed to %q, %v", what, kept, err)
		}
	}
}
