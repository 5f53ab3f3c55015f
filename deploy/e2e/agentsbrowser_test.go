package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/fairlead/fairlead/protocol"
)

// standIns returns a folder that all users may read, with a stand-in for each
// coding agent.
func standIns(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	for parent := filepath.Dir(dir); parent != filepath.Dir(parent) && strings.HasPrefix(parent, os.TempDir()+"/"); parent = filepath.Dir(parent) {
		must(t, os.Chmod(parent, 0o755)) // terminals are other users
	}
	must(t, build(filepath.Join("..", ".."), dir, []string{"./deploy/e2e/agents/fakecli"}))
	for _, name := range wiredAgents {
		must(t, os.Symlink("fakecli", filepath.Join(dir, name)))
	}
	return dir
}

// linkTo opens a terminal in the console.
func linkTo(s *Stack, user string, id protocol.PTYID) string {
	return fmt.Sprintf("%s/#token=%s&session=%s&pty=%s", s.Ready.Relays[0].URL, s.Ready.Users[user].Token, s.Ready.SessionID, id)
}

// chromiumInstalled reports whether openWindow finds one.
func chromiumInstalled() bool {
	return slices.ContainsFunc([]string{"chromium", "chromium-browser", "google-chrome"}, func(name string) bool {
		_, err := exec.LookPath(name)
		return err == nil
	})
}

// untilState waits for the state of the agent below the terminal.
func (w *window) untilState(state protocol.AgentState) {
	w.t.Helper()
	w.until(fmt.Sprintf(`document.querySelector('[data-testid=agent]')?.dataset.state === %q`, state))
}

// tool clicks a button of the row of tools, which a phone has in a menu.
func (w *window) tool(id string) {
	w.t.Helper()
	if eval[bool](w, `document.querySelector('[data-testid=btn-more]').checkVisibility()`) {
		w.click("btn-more")
	}
	w.click(id)
}

// TestAgentInTheBrowser: a person starts a coding agent in the console, talks to
// it, and everybody is shown what its Stop hook reported, on a phone too. An
// account is connected and attached with the mouse, and used by the agent; and
// people watch the sandbox's browser that the agent drives.
func TestAgentInTheBrowser(t *testing.T) {
	dir := standIns(t)
	hub := NewFakeGitHub()
	defer hub.Close()
	setup, err := hub.Setup(t.TempDir())
	must(t, err)
	s := own(t, "--integrations", setup)
	_, port := startWebapp(t, s)
	id := newPTY(t, s, "")
	alice := openWindow(t, "agent", linkTo(s, "alice", id), 1440, 900)
	alice.untilText("controller", "You have control")
	carol := openWindow(t, "agentphone", linkTo(s, "carol", id), 390, 844)
	carol.untilText("controller", "alice has control")

	alice.tool("btn-agent-start")
	alice.click("agent-custom")
	alice.until(`document.activeElement.matches('[data-testid=custom-command]')`)
	alice.write(filepath.Join(dir, "claude"))
	alice.click("custom-start")
	alice.untilScreen("claude: ready")
	alice.untilState(protocol.AgentWaiting)
	carol.untilState(protocol.AgentWaiting)

	// A turn ends: agent_stopped, in both browsers.
	alice.typeLine(`terminal_list`)
	alice.untilScreen("claude: done")
	for _, w := range []*window{alice, carol} {
		w.untilState(protocol.AgentWaiting)
		w.tool("btn-agent-panel")
		w.untilText("agent-message", "terminal_list says")
		w.untilText("agent-message", string(id))
		w.untilText("agent-turn-reason", "Claude has finished its turn")
		w.untilText("agent-tools", "Tools: ")
	}
	carol.shoot("panel")
	carol.click("btn-agent-panel-close")

	// An account, from nothing, while the agent runs.
	alice.untilText("integration-github", "Not attached")
	alice.click("btn-attach-github")
	alice.click("attach-connect")
	alice.untilText("attach-consent", "Continue at 127.0.0.1")
	alice.click("attach-consent")
	alice.until(`(window.dispatchEvent(new Event('focus')), document.querySelector('[data-testid=attach-account]').innerText.includes('octo'))`)
	alice.run(devtools(page.BringToFront, cdp.Empty{})) // the service's page is in front of it
	alice.shoot("attach")
	alice.click("attach-save")
	alice.untilText("integration-github", "octo · read only")
	alice.untilScreen("claude: tools changed")
	alice.typeLine(`github_list_repos`)
	alice.untilText("agent-message", "octo/quay")
	carol.tool("btn-agent-panel")
	carol.untilText("integration-github", "lent by alice")
	carol.untilText("agent-message", "octo/quay")
	carol.until(`!document.querySelector('[data-testid=btn-detach-github]').checkVisibility()`)
	carol.click("btn-agent-panel-close")
	alice.shoot("panel")
	alice.click("btn-detach-github")
	alice.run(chromedp.Click(chromedp.CSS("#ask-yes"), chromedp.NodeVisible))
	alice.untilText("integration-github", "Not attached")
	nowhere(t, s.Dir, hub.Token)

	// The sandbox's own browser.
	alice.typeLine(fmt.Sprintf(`browser_navigate {"url":"http://127.0.0.1:%d/"}`, port))
	alice.untilText("agent-message", "browser_navigate says")
	for _, w := range []*window{alice, carol} {
		w.tool("btn-browser")
		w.untilText("browser-url", fmt.Sprint(port))
		w.until(`document.querySelector('[data-testid=browser-picture]').checkVisibility() && document.querySelector('[data-testid=browser-picture]').width > 100`)
		w.shoot("browser")
	}

	carol.click("btn-browser-close")
	alice.typeLine("/exit")
	carol.untilState(protocol.AgentStopped)
}
