package shellapi

import "testing"

// TestSignsIn: weakness 14. A coding agent's program that is told to sign in, however
// it is told, and nothing that only speaks of it.
func TestSignsIn(t *testing.T) {
	for command, want := range map[string]bool{
		"claude setup-token": true, "claude /login": true, `claude "/login"`: true, "claude '/login'": true,
		"claude --dangerously-skip-permissions /login": true, "/usr/bin/claude /login": true, `c\laude /login`: true,
		"codex login": true, "codex login --device-auth": true, "codex -c a=b login": true,
		"cursor-agent login": true, "opencode auth login": true, "gemini /login": true,
		"gcloud auth login --no-browser": true, "gh auth login": true, "gh --verbose auth login": true,
		"cd x&&codex login": true, "(codex login)": true, "cd x; claude /login || true": true, "{ codex login; }": true,
		"NO_BROWSER=1 codex login": true, "env A=b claude /login": true, "npx -y @openai/codex@latest login": true,
		"npx @anthropic-ai/claude-code /login": true, "cat x\ncodex login": true,

		"": false, " ": false, "claude": false, "claude --resume login-1": false, "claude --login-hint": false,
		`claude -p "why does login fail"`: false, "claude 'auth login'": false, "codexx login": false,
		"cat login.txt": false, "cat login": false, `grep "login"`: false, "grep login x | claude": false,
		"grep -r setup-token .": false, "vim /login": false, "echo claude /login": false, "echo 'claude /login'": false,
		"npm run test:login": false, "npm login": false, "./login": false, "login": false, "logins": false,
		"grep auth login": false, "echo auth login": false, "gh auth status login": false,
		"claude \"/log": false, "\\": false, "&&;;||": false, "npx": false, "A=codex login": false,
	} {
		if got := signsIn(command); got != want {
			t.Errorf("%q: %t", command, got)
		}
	}
}

// FuzzSignsIn: no command is too odd.
func FuzzSignsIn(f *testing.F) {
	f.Add("cd x&&codex 'login'")
	f.Add("\"\\")
	f.Fuzz(func(t *testing.T, command string) { signsIn(command) })
}
