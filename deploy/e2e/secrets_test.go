package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/protocol/op"
)

// setEnv is POST /sessions/{sid}/env by alice.
func setEnv(ctx context.Context, t *testing.T, s *Stack, body map[string]any) {
	t.Helper()
	u := s.Ready.User("alice")
	grant, err := u.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	must(t, call(ctx, http.StatusOK, nil, http.MethodPost, fmt.Sprintf("%s/sessions/%s/env", u.Base, s.Ready.SessionID), grant, body))
}

// newSecret returns a secret with characters that encodings change.
func newSecret() string {
	return "sk/" + rand.Text() + `+"\` + rand.Text()[:10] + "=ü"
}

// encodings returns the forms of secret in which output may show it.
func encodings(secret string) map[string]string {
	quoted, _ := json.Marshal(secret) // of a string it never fails
	percent := ""
	for i := range len(secret) {
		percent += fmt.Sprintf("%%%02x", secret[i])
	}
	forms := map[string]string{
		"plain": secret, "json": strings.Trim(string(quoted), `"`),
		"query": url.QueryEscape(secret), "path": url.PathEscape(secret), "every byte": percent,
		"hex": hex.EncodeToString([]byte(secret)), "HEX": strings.ToUpper(hex.EncodeToString([]byte(secret))),
	}
	for phase := range 3 {
		text := []byte("zyx"[:phase] + secret)
		for name, encoding := range map[string]*base64.Encoding{"base64": base64.StdEncoding, "base64url": base64.RawURLEncoding} {
			forms[fmt.Sprint(name, " ", phase)] = encoding.EncodeToString(text)
		}
	}
	return forms
}

var (
	escapes = regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]`)
	unseen  = strings.NewReplacer("\r", "", "\n", "", "\x00", "")
)

// reveals reports the part of a secret, in whatever form, that output shows: 10
// bytes that belong to no other word.
func reveals(output []byte, secret string) string {
	raw := unseen.Replace(string(output))
	seen := unseen.Replace(escapes.ReplaceAllString(string(output), ""))
	for name, form := range encodings(secret) {
		for i := 0; i+10 <= len(form); i++ {
			if part := form[i : i+10]; strings.Contains(raw, part) || strings.Contains(seen, part) {
				return name + ": " + part
			}
		}
	}
	return ""
}

// printed returns what a program prints that shows a secret in every form, in
// colours that change at each character.
func printed(secret string) []byte {
	var out bytes.Buffer
	for name, form := range encodings(secret) {
		fmt.Fprintf(&out, "%s\r\n%s\r\n", name, form)
		for i, r := range form {
			fmt.Fprintf(&out, "\x1b[3%dm%c", i%8, r)
		}
		fmt.Fprint(&out, "\x1b[m\r\n")
		for i, r := range form { // as fold(1) would
			fmt.Fprintf(&out, "%c", r)
			if i%20 == 19 {
				fmt.Fprint(&out, "\r\n")
			}
		}
		fmt.Fprintf(&out, "\r\n\x1b]0;%s\x07 after %s\r\n", form, name)
	}
	return out.Bytes()
}

// inWorkspace writes a file where terminals start.
func inWorkspace(ctx context.Context, t *testing.T, s *Stack, name string, content []byte) {
	t.Helper()
	u := s.Ready.User("alice")
	grant, err := u.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut,
		fmt.Sprintf("%s/sessions/%s/file?path=%s", u.Base, s.Ready.SessionID, url.QueryEscape("/"+name)), bytes.NewReader(content))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+grant)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("PUT %s: status %d", name, resp.StatusCode)
	}
}

// narrowPTY has alice open a terminal of 20 columns.
func narrowPTY(ctx context.Context, t *testing.T, s *Stack, command string) protocol.PTYID {
	t.Helper()
	u := s.Ready.User("alice")
	grant, err := u.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	var answer struct {
		ID protocol.PTYID `json:"id"`
	}
	must(t, call(ctx, http.StatusCreated, &answer, http.MethodPost, fmt.Sprintf("%s/sessions/%s/ptys", u.Base, s.Ready.SessionID), grant,
		map[string]any{"command": command, "cols": 20, "rows": 24, "record": true}))
	return answer.ID
}

// TestSecretsAreMasked: a terminal that prints each secret in each encoding, one
// byte at a time, with colours and at width 20. No transcript shows one: not
// that of who watched, of who came late, the log or the recording.
func TestSecretsAreMasked(t *testing.T) {
	s := own(t)
	ctx := within(t)
	secrets := []string{newSecret(), newSecret()}
	set := map[string]any{}
	var out []byte
	for i, secret := range secrets {
		set[fmt.Sprint("SECRET_", i)] = map[string]any{"value": secret, "broker_protected": i == 1}
		out = append(out, printed(secret)...)
	}
	setEnv(ctx, t, s, map[string]any{"secrets": set})
	inWorkspace(ctx, t, s, "printed", out)

	id := narrowPTY(ctx, t, s, "read x; dd if=printed bs=1 status=none; echo all-printed; read x")
	alice := attach(t, s, "alice", id)
	carol := attach(t, s, "carol", id)
	must(t, alice.Type(ctx, "\r"))
	for _, who := range []*Terminal{alice, carol} {
		must(t, who.Expect(ctx, "all-printed"))
	}
	late := attach(t, s, "carol", id)
	must(t, late.Expect(ctx, "all-printed"))
	must(t, alice.Type(ctx, "\r"))
	_, err := alice.ExpectMessage(ctx, protocol.ServerPTYClosed, nil)
	must(t, err)

	u := s.Ready.User("alice")
	grant, err := u.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	base := fmt.Sprintf("%s/sessions/%s", u.Base, s.Ready.SessionID)
	attached, err := alice.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)
	_, log, err := Call(ctx, http.MethodGet, fmt.Sprintf("%s/ptys/%s/log?from=%s:0", base, id, attached["epoch"]), grant, nil)
	must(t, err)
	recordings := awaitRecordings(ctx, t, base, grant)
	if len(recordings) != 1 {
		t.Fatalf("%d recordings", len(recordings))
	}
	_, cast, err := Call(ctx, http.MethodGet, base+"/recordings/"+recordings[0].ID, grant, nil)
	must(t, err)
	for name, transcript := range map[string][]byte{
		"alice's": alice.Output(), "carol's": carol.Output(), "who came late": late.Output(), "the log": log, "the recording": castOutput(t, cast),
	} {
		if !bytes.Contains(transcript, []byte("all-printed")) || bytes.Count(transcript, []byte("*")) < 40 {
			t.Errorf("%s transcript is not one: %q", name, transcript[max(0, len(transcript)-200):])
		}
		for _, secret := range secrets {
			if shown := reveals(transcript, secret); shown != "" {
				t.Errorf("%s transcript shows %s", name, shown)
			}
		}
	}
	if !bytes.Contains(log, []byte("after every byte")) {
		t.Error("what is no secret is masked")
	}
}

// awaitRecordings returns the recordings of a session once all have ended: one
// may have more to write than its terminal.
func awaitRecordings(ctx context.Context, t *testing.T, base, grant string) []protocol.RecordingInfo {
	t.Helper()
	var list protocol.RecordingList
	await(t, "the end of the recordings", func() bool {
		list = protocol.RecordingList{}
		must(t, call(ctx, http.StatusOK, &list, http.MethodGet, base+"/recordings", grant, nil))
		return !slices.ContainsFunc(list.Recordings, func(r protocol.RecordingInfo) bool { return r.EndedAt == 0 })
	})
	return list.Recordings
}

// castOutput returns what an asciicast shows.
func castOutput(t *testing.T, cast []byte) (out []byte) {
	t.Helper()
	for i, line := range bytes.Split(bytes.TrimSpace(cast), []byte("\n")) {
		if i == 0 {
			continue
		}
		var event []any
		must(t, json.Unmarshal(line, &event))
		if event[1] == "o" {
			out = append(out, event[2].(string)...)
		}
	}
	return out
}

// TestSecretThatComesLate: a secret that stands in what a terminal has printed
// already is gone from everywhere once it is known.
func TestSecretThatComesLate(t *testing.T) {
	s := own(t)
	ctx := within(t)
	secret := "late" + rand.Text()
	id := narrowPTY(ctx, t, s, "echo before-it "+secret+" behind-it; read x; echo over")
	alice := attach(t, s, "alice", id)
	must(t, alice.Expect(ctx, "behind-it"))
	if reveals(alice.Output(), secret) == "" {
		t.Fatal("it is not shown to begin with")
	}
	attached, err := alice.ExpectMessage(ctx, protocol.ServerAttached, nil)
	must(t, err)
	setEnv(ctx, t, s, map[string]any{"secrets": map[string]any{"LATE": map[string]any{"value": secret}}})
	resync, err := alice.ExpectMessage(ctx, protocol.ServerResync, nil)
	must(t, err)
	if resync["epoch"] == attached["epoch"] {
		t.Error("the log goes on")
	}
	u := s.Ready.User("alice")
	grant, err := u.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	base := fmt.Sprintf("%s/sessions/%s", u.Base, s.Ready.SessionID)
	if status, body, err := Call(ctx, http.MethodGet, fmt.Sprintf("%s/ptys/%s/log?from=%s:0", base, id, attached["epoch"]), grant, nil); err != nil || status != http.StatusNotFound {
		t.Errorf("the old log: %d %s %v", status, body, err)
	}
	for name, since := range map[string]string{"anew": "", "with the old position": fmt.Sprintf("%s:5", attached["epoch"])} {
		again, err := u.Attach(ctx, s.Ready.SessionID, id, since)
		must(t, err)
		must(t, again.Expect(ctx, "*****"))
		must(t, again.Expect(ctx, "behind-it"))
		if shown := reveals(again.Output(), secret); shown != "" {
			t.Errorf("attached %s: %s", name, shown)
		}
		again.Close()
	}
	must(t, alice.Type(ctx, "\r"))
	_, err = alice.ExpectMessage(ctx, protocol.ServerPTYClosed, nil)
	must(t, err)
	for _, r := range awaitRecordings(ctx, t, base, grant) {
		_, cast, err := Call(ctx, http.MethodGet, base+"/recordings/"+r.ID, grant, nil)
		must(t, err)
		if shown := reveals(castOutput(t, cast), secret); shown != "" {
			t.Errorf("the recording: %s", shown)
		}
	}
}

// TestEnvironment: what env.apply sets is in new terminals, and before the next
// prompt in running shells; a protected secret is nowhere but in the broker. No
// value is in anything that the programs keep.
func TestEnvironment(t *testing.T) {
	s := own(t)
	ctx := within(t)
	shell := attach(t, s, "alice", s.Ready.PTYID)
	must(t, shell.Type(ctx, "echo ready-$((1))\r"))
	must(t, shell.Expect(ctx, "ready-1"))
	canary, other, protected := "canary"+rand.Text(), "mine"+rand.Text(), "brokered"+rand.Text()
	setEnv(ctx, t, s, map[string]any{
		"set": map[string]any{"COLOR": "blue-sky"}, "apply_now": true,
		"secrets": map[string]any{
			"CANARY": map[string]any{"value": canary}, "OPENAI_API_KEY": map[string]any{"value": protected, "broker_protected": true},
		},
	})
	// Which of the two it is can't be seen: what is printed is masked.
	check := func(term *Terminal, name string) {
		t.Helper()
		must(t, term.Type(ctx, `echo "$COLOR/${#CANARY}/${#OPENAI_API_KEY}/${OPENAI_BASE_URL%%/broker*}/`+name+`"`+"\r"))
		must(t, term.Await(ctx, name, func(output []byte, _ []Message, _ error) bool {
			return regexp.MustCompile(fmt.Sprintf(`blue-sky/%d/\d+/http://127\.0\.0\.1:\d+/%s`, len(canary), name)).Match(output)
		}))
	}
	must(t, shell.Type(ctx, "\r")) // the prompt that stands there was drawn before
	check(shell, "running")
	id := newPTY(t, s, "")
	fresh := attach(t, s, "alice", id)
	check(fresh, "fresh")
	must(t, fresh.Type(ctx, "echo key:$OPENAI_API_KEY:\r"))
	must(t, fresh.Expect(ctx, "key:[BROKERED]"))

	// A secret of one terminal is in no other's environment.
	u := s.Ready.User("alice")
	grant, err := u.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	must(t, call(ctx, http.StatusOK, nil, http.MethodPost, fmt.Sprintf("%s/sessions/%s/ptys/%s/env", u.Base, s.Ready.SessionID, id), grant,
		map[string]any{"secrets": map[string]any{"MINE": map[string]any{"value": other}}, "apply_now": true}))
	must(t, fresh.Type(ctx, "\rsleep 1000 & echo mine:${#MINE}:\r"))
	must(t, fresh.Expect(ctx, fmt.Sprintf("mine:%d:", len(other))))
	third := attach(t, s, "alice", newPTY(t, s, ""))
	must(t, third.Type(ctx, "sleep 1000 & echo mine:${#MINE}:\r"))
	must(t, third.Expect(ctx, "mine:0:"))
	var holders map[string]bool
	await(t, "a process with the secret of "+string(id), func() bool { // sleep may not have begun
		holders = holdersOf(t, other, canary, protected)
		return len(holders) > 0
	})
	if len(holders) != 1 || !holders[string(id)] {
		t.Errorf("the secret of %s is in the environment of %v", id, holders)
	}
	var list op.EnvList
	must(t, call(ctx, http.StatusOK, &list, http.MethodGet, fmt.Sprintf("%s/sessions/%s/env", u.Base, s.Ready.SessionID), grant, nil))
	if len(list.Variables) != 4 {
		t.Errorf("%+v", list)
	}
	for _, term := range []*Terminal{shell, fresh, third} {
		for _, value := range []string{canary, other, protected} {
			if shown := reveals(term.Output(), value); shown != "" {
				t.Errorf("a terminal shows %s", shown)
			}
		}
	}
	nowhere(t, s.Dir, canary, other, protected)
}

// holdersOf returns the terminals of the processes that have mine in their
// environment. Nobody may have protected there, and nobody either of two others
// among the arguments.
func holdersOf(t *testing.T, mine, canary, protected string) map[string]bool {
	t.Helper()
	holders := map[string]bool{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil {
			continue
		}
		if bytes.Contains(environ, []byte(protected)) {
			t.Errorf("the brokered key is in the environment of a process")
		}
		if bytes.Contains(environ, []byte(mine)) {
			_, after, _ := bytes.Cut(environ, []byte("FAIRLEAD_PTY_ID="))
			pty, _, _ := bytes.Cut(after, []byte{0})
			holders[string(pty)] = true
		}
		if line, err := os.ReadFile(filepath.Join(dir, "cmdline")); err == nil && (bytes.Contains(line, []byte(canary)) || bytes.Contains(line, []byte(protected))) {
			t.Errorf("a value is in the arguments of %s", line)
		}
	}
	return holders
}

// nowhere fails the test when a file below dir holds one of values.
func nowhere(t *testing.T, dir string, values ...string) {
	t.Helper()
	files := 0
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was about to be put in another's place
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		files++
		for _, value := range values {
			if bytes.Contains(data, []byte(value)) || bytes.Contains(data, []byte(base64.StdEncoding.EncodeToString([]byte(value)))) {
				t.Errorf("%s holds a value", path)
			}
		}
		return nil
	}))
	if files < 10 {
		t.Errorf("only %d files were looked at", files)
	}
}
