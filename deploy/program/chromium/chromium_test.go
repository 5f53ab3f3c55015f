package chromium

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, err := Find(); !errors.Is(err, ErrMissing) {
		t.Errorf("without one: %v", err)
	}
	path := filepath.Join(dir, "chromium-browser")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if found, err := Find(); err != nil || found != path {
		t.Errorf("%q %v", found, err)
	}
	if with, without := len(Headless(path, dir, dir)), len(Headless(path, dir, "")); with <= without {
		t.Errorf("%d options with an extension, %d without", with, without)
	}
}
