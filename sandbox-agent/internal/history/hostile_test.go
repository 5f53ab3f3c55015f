package history

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReplacedTranscript: a transcript in whose place there is something else
// shows nothing of that, at once and later, and is counted. What is its own is
// shown again.
func TestReplacedTranscript(t *testing.T) {
	r := newRig(t)
	project := r.workspace + "/project"
	home := r.terminal(session1, "pty_1")
	name := r.transcript(home, project, native1)
	outside, other := r.dir+"/outside.jsonl", r.transcript(home, project, native2)
	r.write(outside, row(1, project, native1, "user", "outside"))
	r.write(other, row(1, project, native2, "user", "another"))
	own := r.conversation(session1, native1)
	path := "providers/sessions/" + string(own.ID)
	write := func(content string) func() error {
		return func() error { return os.WriteFile(name, []byte(content), 0o600) }
	}
	for _, c := range []struct {
		what string
		by   func() error
		want string
	}{
		{"it is back", write(row(1, project, native1, "user", "good") + row(2, project, native1, "user", "more")), "good,more"},
		{"it shrinks", write(row(1, project, native1, "user", "good")), "good"},
		{"it is as long and other", write(row(1, project, native1, "user", "evil")), "evil"},
		{"a link leads outside", func() error { return os.Symlink(outside, name) }, ""},
		{"a link leads to another", func() error { return os.Symlink(other, name) }, ""},
		{"a pipe", func() error { return unix.Mkfifo(name, 0o666) }, ""},
		{"a folder", func() error { return os.Mkdir(name, 0o700) }, ""},
		{"another project's cwd", write(row(1, r.workspace, native1, "user", "foreign")), ""},
		{"a cwd outside of the workspace", write(row(1, "/etc", native1, "user", "foreign")), ""},
		{"another session's id", write(row(1, project, native2, "user", "foreign")), ""},
		{"it is empty", write(""), ""},
		{"it is gone", func() error { return nil }, ""},
	} {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
		r.write(name, row(1, project, native1, "user", "good")+row(2, project, native1, "user", "more"))
		r.scan(t.Context(), r.sessions[session1].homes["pty_1"])
		var before messages
		if r.get(path+"/messages", 200, &before); before.texts(t, own.ID) != "good,more" {
			t.Fatalf("%s: before: %+v", c.what, before)
		}
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
		if err := c.by(); err != nil {
			t.Fatal(err)
		}
		for _, when := range []string{"at once", "later"} {
			var m messages
			if r.get(path+"/messages", 200, &m); m.texts(t, own.ID) != c.want || m.Data.Total != len(m.Data.Messages) {
				t.Errorf("%s, %s: %+v", c.what, when, m)
			}
			if used := r.get(path+"/token-usage", 200, nil); !strings.Contains(used, `"used":0`) {
				t.Errorf("%s: %s", c.what, used)
			}
			for _, word := range []string{"outside", "foreign", "another"} {
				if found := r.get("providers/search/sessions?q="+word, 200, nil); strings.Contains(found, string(own.ID)) {
					t.Errorf("%s: %s", c.what, found)
				}
			}
			r.scan(t.Context(), r.sessions[session1].homes["pty_1"])
		}
	}
	if r.counts.refused.Load() == 0 {
		t.Error("nothing was refused")
	}
}
