package chat

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

const native = "11111111-1111-4111-8111-111111111111"

func openConversations(t *testing.T, dir string) *Conversations {
	t.Helper()
	c, err := OpenConversations(dir, slog.New(slog.DiscardHandler))
	check(t, err)
	return c
}

// twins returns a conversation of the app and what was found on disk of its
// provider's session, which the app doesn't know yet.
func twins(t *testing.T, c *Conversations) (own, found ConversationInfo) {
	t.Helper()
	own, err := c.Create(ConversationInfo{Session: session, Provider: "claude", ProjectPath: "/work"})
	check(t, err)
	found, made, err := c.Adopt(ConversationInfo{Session: session, Provider: "claude", Native: native, ProjectPath: "/work"})
	check(t, err)
	if !made || !found.Adopted || string(found.ID) == native || !protocol.ValidConversation(found.ID) {
		t.Fatalf("%+v", found)
	}
	return own, found
}

// TestMerged: what was found on disk becomes one with the app's conversation whose
// it is, with the name that somebody has given it meanwhile.
func TestMerged(t *testing.T) {
	dir := t.TempDir()
	c := openConversations(t, dir)
	own, found := twins(t, c)
	var changes []Change
	defer c.Watch(func(change Change) { changes = append(changes, change) })()
	_, err := c.Rename(session, found.ID, "named")
	check(t, err)
	check(t, c.setNative(session, own.ID, native))
	for what, c := range map[string]*Conversations{"now": c, "opened again": openConversations(t, dir)} {
		all := c.List(session)
		if len(all) != 1 || all[0].ID != own.ID || all[0].Native != native || all[0].Title != "named" || all[0].Adopted {
			t.Errorf("%s: %+v", what, all)
		}
		if info, known := c.ByNative(session, "claude", native); !known || info.ID != own.ID {
			t.Errorf("%s: %+v", what, info)
		}
	}
	if last := changes[len(changes)-1]; !last.Deleted || last.ID != found.ID {
		t.Errorf("%+v", changes)
	}
	if again, made, err := c.Adopt(ConversationInfo{Session: session, Provider: "claude", Native: native}); made || err != nil || again.ID != own.ID {
		t.Errorf("found again: %+v, %v", again, err)
	}
	if other, made, err := c.Adopt(ConversationInfo{Session: session, Provider: "codex", Native: native, ProjectPath: "/work"}); !made || err != nil || other.ID == own.ID {
		t.Errorf("another provider's: %+v, %v", other, err)
	}
	if _, err := os.Stat(filepath.Join(dir, string(found.ID))); !os.IsNotExist(err) {
		t.Errorf("its folder is left: %v", err)
	}
}

// TestAdopted: what several find at once gets one conversation, whose id is not
// its provider's and stays over restarts; the same session's id elsewhere is
// another one.
func TestAdopted(t *testing.T) {
	dir := t.TempDir()
	c := openConversations(t, dir)
	of := func(s protocol.SessionID) ConversationInfo {
		return ConversationInfo{Session: s, Provider: "claude", Native: native, ProjectPath: "/work"}
	}
	var finding sync.WaitGroup
	var made atomic.Int32
	for range 16 {
		finding.Go(func() {
			if _, fresh, err := c.Adopt(of(session)); err != nil {
				t.Error(err)
			} else if fresh {
				made.Add(1)
			}
		})
	}
	finding.Wait()
	all := c.List(session)
	if made.Load() != 1 || len(all) != 1 || string(all[0].ID) == native {
		t.Fatalf("%d made: %+v", made.Load(), all)
	}
	if again := openConversations(t, dir).List(session); len(again) != 1 || again[0] != all[0] {
		t.Errorf("opened again: %+v, was %+v", again, all)
	}
	other, fresh, err := c.Adopt(of("ses_2"))
	if err != nil || !fresh || other.ID == all[0].ID {
		t.Errorf("another session's: %+v, %t, %v", other, fresh, err)
	}
	if _, err := c.Get(session, native); protocol.AsError(err).Kind != protocol.KindNotFound {
		t.Errorf("by its provider's id: %v", err)
	}
}

// TestKilledInBetween: of two that are one only the app's is left when the program
// starts again, whichever file is read first.
func TestKilledInBetween(t *testing.T) {
	dir := t.TempDir()
	c := openConversations(t, dir)
	own, found := twins(t, c)
	kept, err := os.ReadFile(filepath.Join(dir, string(found.ID), metaFile))
	check(t, err)
	check(t, c.setNative(session, own.ID, native))
	check(t, os.MkdirAll(filepath.Join(dir, string(found.ID)), 0o700))
	check(t, os.WriteFile(filepath.Join(dir, string(found.ID), metaFile), kept, 0o600))
	c = openConversations(t, dir)
	if all := c.List(session); len(all) != 1 || all[0].ID != own.ID {
		t.Errorf("%+v", all)
	}
	if info, known := c.ByNative(session, "claude", native); !known || info.ID != own.ID {
		t.Errorf("%+v", info)
	}
	if _, err := os.Stat(filepath.Join(dir, string(found.ID))); !os.IsNotExist(err) {
		t.Errorf("its folder is left: %v", err)
	}
}

// TestConversations: they are there after a restart, one that can't be read is left
// alone, and none is another session's.
func TestConversations(t *testing.T) {
	dir := t.TempDir()
	c := openConversations(t, dir)
	made, err := c.Create(ConversationInfo{ID: "c-1", Session: session, Provider: "claude", ProjectPath: "/work", Title: "a"})
	check(t, err)
	again, err := c.Create(ConversationInfo{ID: "c-1", Session: session, Provider: "claude", ProjectPath: "/work", Title: "b"})
	if err != nil || again != made {
		t.Errorf("%+v, %v", again, err)
	}
	if _, err := c.Create(ConversationInfo{ID: "c-1", Session: "ses_2", Provider: "claude", ProjectPath: "/work"}); protocol.AsError(err).Kind != protocol.KindConflict {
		t.Errorf("another session's: %v", err)
	}
	for what, do := range map[string]func() error{
		"get":     func() error { _, err := c.Get("ses_2", "c-1"); return err },
		"rename":  func() error { _, err := c.Rename("ses_2", "c-1", "x"); return err },
		"archive": func() error { _, err := c.Archive("ses_2", "c-1", true); return err },
		"native":  func() error { return c.setNative("ses_2", "c-1", native) },
		"remove":  func() error { return c.remove("ses_2", "c-1") },
	} {
		if err := do(); protocol.AsError(err).Kind != protocol.KindNotFound {
			t.Errorf("%s: %v", what, err)
		}
	}
	check(t, os.Mkdir(filepath.Join(dir, "c-2"), 0o700))
	check(t, os.WriteFile(filepath.Join(dir, "c-2", metaFile), []byte(`{"format":99,"id":"c-2"}`), 0o600))
	c = openConversations(t, dir)
	if all := c.List(session); len(all) != 1 || all[0] != made {
		t.Errorf("%+v", all)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "c-2", metaFile)); err != nil || string(text) != `{"format":99,"id":"c-2"}` {
		t.Errorf("%s, %v", text, err)
	}
}
