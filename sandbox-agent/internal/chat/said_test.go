package chat

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/sandbox-agent/internal/chatlog"
)

// TestSaidOnce: a log is read once, then its index follows; a secret that comes
// late is hidden in what is known, and a restart reads anew.
func TestSaidOnce(t *testing.T) {
	r := newRig(t)
	r.make()
	v := r.view(bob, protocol.ChatParams{})
	p := r.begins("the word")
	p.print("done 0")
	v.event(protocol.ChatText)
	v.completes(0, false)
	texts := func(of *rig) (all []string) {
		said, err := of.Said(session, r.id)
		check(t, err)
		for _, s := range said.Sayings {
			for _, text := range []string{"the word", "/last"} {
				if s.Text == chatlog.DigestOf(text) && s.Command == chatlog.IsCommand(text) {
					all = append(all, text)
				}
			}
		}
		return all
	}
	if got := fmt.Sprint(texts(r)); got != "[the word]" {
		t.Error(got)
	}
	check(t, r.sends(alice, "/last"))
	p.print("done 0")
	v.event(protocol.ChatText)
	v.completes(0, false)
	files, err := filepath.Glob(filepath.Join(r.dir, "chat", string(r.id), "events-*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	content, err := os.ReadFile(files[0])
	check(t, err)
	check(t, os.Remove(files[0]))
	if got := fmt.Sprint(texts(r)); got != "[the word /last]" {
		t.Errorf("without the log's file: %s", got)
	}
	check(t, os.WriteFile(files[0], content, 0o600))
	_, err = r.secrets.Change([]string{"the word"})
	check(t, err)
	if got := fmt.Sprint(texts(r)); got != "[/last]" {
		t.Errorf("after a secret came late: %s", got)
	}
	r.close()
	again := newRigIn(t, r.dir)
	if got := fmt.Sprint(texts(again)); got != "[/last]" {
		t.Errorf("after a restart: %s", got)
	}
	check(t, again.Delete(session, r.id))
}
