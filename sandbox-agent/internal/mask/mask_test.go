package mask

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
)

const secret = "hunter2-hunter2"

// TestLog: no secret reaches the log, wherever it stands; what was derived before
// the secret was known masks it, too.
func TestLog(t *testing.T) {
	var s Secrets
	var out bytes.Buffer
	log := slog.New(s.Handler(slog.NewTextHandler(&out, nil))).WithGroup("group")
	log.Info("before", "text", "nothing")
	if _, err := s.Change([]string{secret}); err != nil {
		t.Fatal(err)
	}
	log.With("own", secret).Info("it is "+secret, "text", secret, "err", errors.New("no: "+secret), "group", slog.GroupValue(slog.String("in", secret)), "n", 5)
	if text := out.String(); strings.Contains(text, secret) || strings.Count(text, strings.Repeat("*", len(secret))) != 5 || !strings.Contains(text, "nothing") || !strings.Contains(text, "n=5") {
		t.Error(text)
	}
}

// TestChange: what can't be masked changes nothing.
func TestChange(t *testing.T) {
	var none *Secrets
	if got := none.Mask([]byte(secret)); string(got) != secret {
		t.Errorf("without secrets: %s", got)
	}
	var s Secrets
	if _, err := s.Change([]string{secret}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Change([]string{"01\x1b[0m\x1b[0m"}); protocol.KindOf(err) != protocol.KindInvalid {
		t.Errorf("hardly anything of it can be seen: %v", err)
	}
	stream := s.Stream()
	got := append(stream.Write(nil, []byte("a "+secret)), stream.Flush(nil)...)
	if string(got) != "a "+strings.Repeat("*", len(secret)) {
		t.Errorf("%s", got)
	}
}
