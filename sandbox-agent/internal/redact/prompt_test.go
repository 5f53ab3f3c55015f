package redact_test

import (
	"fmt"
	"strings"
	"testing"
)

// prompts is what terminals show while they wait.
var prompts = strings.Split(strings.ReplaceAll(`$ |# |> |% |user@host:~$ |root@sandbox-1:/var/log# |\e[01;32mdev@box\e[00m:\e[01;34m~/src\e[00m$ |>>> |... |In [12]: |mysql> |postgres=# |app=> |irb(main):001:0> |(gdb) |sqlite> |Password: |Enter passphrase for key '/srv/app/.ssh/id_ed25519': |[sudo] password for dev: |Are you sure you want to continue connecting (yes/no/[fingerprint])? |Proceed? [Y/n] |Username for 'https://github.com': |~/src/fairlead main* ❯ |➜  src git:(main) ✗ |[12:34:56] dev@box ~ $ |dev@box ~ (main ✔) 2026-11-21 12:34 $ |C:\Users\dev> |bash-5.2$ |(venv) user@host ~/app % |npm WARN deprecated |? Select a framework: |Continue? (y/N) |--More--(42%)|:|(END)|lines 1-40/120 (END)|Press ENTER to continue|? for shortcuts|Loading...|Done.|100%|[#########           ] 47%|Compiling fairlead v0.3.1|drwxr-xr-x  2 dev dev 4096 Nov 21 12:34 src|-rw-r--r-- 1 root root    812 Nov 21 09:29 bench_test.go|README.md  go.mod  go.sum  internal|total 52|origin/main 1f0c9d2 Merge branch 'x'|HEAD is now at deadbee fix|On branch main|nothing to commit, working tree clean|PASS|ok  	example.com/pkg	0.012s|listening on 127.0.0.1:8080|$ git log --oneline|$ cat notes|~/.config/app|2026/11/21 12:34:56 INFO ready|sk|gh|AKI|eyJ|ghp`, `\e`, "\x1b"), "|")

// TestPromptsAreNotHeld counts what of prompts is held with as many secrets as
// there can be, of common shapes and in all encodings.
func TestPromptsAreNotHeld(t *testing.T) {
	secrets := secretsOf(newRand(), 10000)
	s := compile(t, secrets...)
	held := 0
	for _, p := range prompts {
		for _, before := range []string{"\r\n", "some output\r\n", "\x1b[2K\r"} {
			r := s.NewStream()
			out := r.Write(nil, []byte(before+p))
			if r.Held() == 0 {
				if string(out) != before+p {
					t.Errorf("%q became %q", before+p, out)
				}
				continue
			}
			held++
			t.Logf("%q holds %d bytes", p, r.Held())
		}
	}
	// None of these begins a secret by accident; a few do by a form of hex or
	// base64, which ten thousand secrets have many of.
	if share := float64(held) / float64(3*len(prompts)); share > 0.03 {
		t.Errorf("%.1f %% of the prompts are held", 100*share)
	} else {
		t.Logf("%.1f %% of %d prompts are held", 100*share, 3*len(prompts))
	}
	shown := 0
	lines := 0
	for _, o := range outputs(newRand()) {
		for _, l := range strings.SplitAfter(string(o.text[:100000]), "\n") {
			r := s.NewStream()
			r.Write(nil, []byte(l))
			lines++
			if r.Held() > 0 {
				shown++
			}
		}
	}
	t.Logf("%.2f %% of %d lines end in what is held", 100*float64(shown)/float64(lines), lines)
}

// TestNumbersAreSeldomHeld types numbers as people and programs do, with as many
// secrets as there can be. A number that is held is the beginning of a secret as it
// is, of which ten thousand have many.
func TestNumbersAreSeldomHeld(t *testing.T) {
	s := compile(t, secretsOf(newRand(), 10000)...)
	r := newRand()
	for _, c := range []struct {
		name string
		most float64 // percent
		text func(i int) string
	}{
		{"kill", 3, func(i int) string { return fmt.Sprint("$ kill ", 1000+i*9) }},
		{"port", 3, func(i int) string { return fmt.Sprint("listening on 127.0.0.1:", 1024+i*64) }},
		{"time", 0.1, func(i int) string { return fmt.Sprintf("%02d:%02d:%02d", i%24, i%60, i*7%60) }},
		{"time and space", 0.1, func(i int) string { return fmt.Sprintf("[%02d:%02d:%02d ", i%24, i%60, i*7%60) }},
		{"date", 0.5, func(i int) string { return fmt.Sprintf("2026-%02d-%02d", 1+i%12, 1+i%28) }},
		{"sha", 3, func(int) string { return fmt.Sprintf("%07x", r.UintN(1<<28)) }},
		{"sha and space", 1, func(int) string { return fmt.Sprintf("%07x ", r.UintN(1<<28)) }},
		{"MAC address", 0.5, func(int) string { return fmt.Sprintf("%02x:%02x:%02x", r.UintN(256), r.UintN(256), r.UintN(256)) }},
		{"percent", 0.1, func(i int) string { return fmt.Sprint("%2", i%10, "%3", i%10) }},
		{"word", 1, func(int) string {
			return "$ " + string([]byte{lower[r.IntN(26)], lower[r.IntN(26)], lower[r.IntN(26)], lower[r.IntN(26)], lower[r.IntN(26)]})
		}},
		{"word and space", 1, func(int) string {
			return "$ " + string([]byte{lower[r.IntN(26)], lower[r.IntN(26)], lower[r.IntN(26)], lower[r.IntN(26)], lower[r.IntN(26)], ' '})
		}},
	} {
		const n = 1000
		held := 0
		for i := range n {
			stream := s.NewStream()
			if stream.Write(nil, []byte(c.text(i))); stream.Held() > 0 {
				held++
			}
		}
		share := 100 * float64(held) / n
		t.Logf("%s: %.1f %% are held", c.name, share)
		if share > c.most {
			t.Errorf("%s: %.1f %% are held, want at most %.1f", c.name, share, c.most)
		}
	}
}
