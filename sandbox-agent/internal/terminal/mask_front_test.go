package terminal

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fairlead/fairlead/protocol"
)

// printed returns all output that waits for v.
func (v *viewer) printed() string {
	v.t.Helper()
	synctest.Wait()
	var b strings.Builder
	for {
		m, err := v.Poll()
		if err != nil {
			v.t.Fatal(err)
		}
		switch m := m.(type) {
		case nil:
			return b.String()
		case protocol.Data:
			b.Write(m.Bytes)
		}
	}
}

// TestHandOverWhileHeld: a coding agent comes in front, and goes, while output is
// held back. What the terminal's own program began comes when it goes on, behind
// the agent's output; what the agent began is masked.
func TestHandOverWhileHeld(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		r.host.SetSecrets(compile(t, secretA), []string{secretA})
		v := r.attach(t, nil)
		r.print("$ " + secretA[:9])
		cli := r.start(t)
		cli.dev.output <- []byte("\x1b[?25l" + secretA + " or " + secretA[:6])
		v.wantOutputLike("$ ", "\x18", "\x1b[?25l"+strings.Repeat("*", len(secretA))+" or ")
		cli.quit(0)
		v.wantOutputLike("******", "\x18", "\r\n")
		r.print(secretA[9:] + "\r\n$ done")
		got := strings.ReplaceAll(v.printed(), "\x18", "")
		if !strings.Contains(got, strings.Repeat("*", len(secretA))+"\r\n$ done") {
			t.Errorf("then %q", got)
		}
		all := r.transcript.Tail(1 << 20)
		wantClean(t, "the log", all, secretA)
	})
}

// wantOutputLike checks that the output has the parts in their order, the first
// at its beginning.
func (v *viewer) wantOutputLike(parts ...string) {
	v.t.Helper()
	got := v.printed()
	rest := got
	for i, part := range parts {
		at := strings.Index(rest, part)
		if at < 0 || i == 0 && at > 0 {
			v.t.Fatalf("got %q, want %q in it", got, parts)
		}
		rest = rest[at+len(part):]
	}
}

// TestSecretsOfTheAgent: the first secret comes while a coding agent is in front.
func TestSecretsOfTheAgent(t *testing.T) {
	stageBubble(t, func(t *testing.T, r *stageRig) {
		v := r.attach(t, nil)
		r.print("$ ")
		cli := r.start(t)
		cli.dev.output <- []byte("key " + secretA[:11])
		synctest.Wait()
		r.host.SetSecrets(compile(t, secretA), []string{secretA})
		cli.dev.output <- []byte(secretA[11:] + ".")
		v.wantOutputLike("", "$ ", "key "+strings.Repeat("*", len(secretA))+".")
		cli.quit(0)
		v.printed()
		r.print("echo " + secretA + ".")
		v.wantOutputLike("echo ", "*.")
	})
}
