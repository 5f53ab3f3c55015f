package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// xtermFolder is where the console's build has xterm.js, which panels draw with.
const xtermFolder = "../../relay/internal/console/web/node_modules/@xterm"

// gstackManifest is what Chrome has to know of the panel, as its own says.
const gstackManifest = `{"manifest_version": 3, "name": "gstack's panel", "version": "1.0",
	"permissions": ["sidePanel", "storage", "activeTab", "scripting", "tabs"],
	"host_permissions": ["http://127.0.0.1:*/", "ws://127.0.0.1:*/"],
	"action": {}, "background": {"service_worker": "worker.js"}, "side_panel": {"default_path": "sidepanel.html"}}`

// gstackShim has the scripts find a grant where the seed's server puts its token,
// which ours never tells, and its port. What they ask goes to the relay as it is.
const gstackShim = `{
	const ask = self.fetch.bind(self);
	self.fetch = async (input, init) => {
		const answer = await ask(input, init);
		if (!String(input).endsWith('/health') || !answer.ok) return answer;
		return new Response(JSON.stringify({...await answer.json(), token: %[1]q, port: %[2]s}));
	};
	self.gstackServerPort = %[2]s;
	self.gstackAuthToken = %[1]q;
}`

var elementIDs = regexp.MustCompile(`getElementById\('([a-z-]+)'\)`)

// A gstack is seed 000's panel: its scripts, unchanged, in an extension of their own.
type gstack struct {
	*window
	s *Stack
}

// openGstack opens the panel that is in a folder of FAIRLEAD_GSTACK's.
func openGstack(t *testing.T, folder string) *gstack {
	t.Helper()
	from := os.Getenv("FAIRLEAD_GSTACK")
	if from == "" {
		t.Skip("FAIRLEAD_GSTACK is not set: README.md says what to put there")
	}
	dir := t.TempDir()
	id := extensionID(dir)
	s := talkStack(t, "", "--extension-ids", id)
	relay, err := url.Parse(s.Ready.Relays[0].URL)
	must(t, err)
	grant, err := s.Ready.User("alice").Grant(within(t), s.Ready.SessionID)
	must(t, err)
	files := map[string]string{"manifest.json": gstackManifest, "shim.js": fmt.Sprintf(gstackShim, grant, relay.Port())}
	scripts := []string{"shim.js", "xterm.js", "addon-fit.js"}
	for _, name := range []string{"sidepanel.js", "sidepanel-terminal.js", "background.js"} {
		data, err := os.ReadFile(filepath.Join(from, folder, name))
		if os.IsNotExist(err) {
			continue
		}
		must(t, err)
		if files[name] = string(data); name != "background.js" {
			scripts = append(scripts, name)
		}
	}
	files["worker.js"] = "importScripts('shim.js');"
	if files["background.js"] != "" {
		files["worker.js"] = "importScripts('shim.js', 'background.js');"
	}
	for name, path := range map[string]string{
		"xterm.js": "xterm/lib/xterm.js", "addon-fit.js": "addon-fit/lib/addon-fit.js", "xterm.css": "xterm/css/xterm.css",
	} {
		data, err := os.ReadFile(filepath.Join(xtermFolder, path))
		must(t, err)
		files[name] = string(data)
	}
	files["sidepanel.html"] = gstackPage(files["sidepanel.js"]+files["sidepanel-terminal.js"], scripts)
	for name, data := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600))
	}
	w := openExtended(t, "gstack-"+folder, "chrome-extension://"+id+"/sidepanel.html", dir, 900, 900)
	w.front()
	return &gstack{w, s}
}

// extensionID is the id that Chrome gives to an extension in a folder.
func extensionID(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	var id strings.Builder
	for _, b := range sum[:16] {
		id.WriteByte('a' + b>>4)
		id.WriteByte('a' + b&15)
	}
	return id.String()
}

// gstackPage is a page with the elements that the scripts look for.
func gstackPage(source string, scripts []string) string {
	var page strings.Builder
	page.WriteString(`<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="xterm.css">
<style>.terminal-mount { width: 800px; height: 400px }</style><div class="command-bar"></div>`)
	var ids []string
	for _, m := range elementIDs.FindAllStringSubmatch(source, -1) {
		if !slices.Contains(ids, m[1]) {
			ids = append(ids, m[1])
		}
	}
	for _, id := range ids {
		switch {
		case id == "agent-thinking": // made when there is one
		case strings.HasSuffix(id, "-input"):
			fmt.Fprintf(&page, `<input id="%s">`, id)
		case strings.HasSuffix(id, "-fontsize"):
			fmt.Fprintf(&page, `<select id="%s"></select>`, id)
		case strings.HasSuffix(id, "-btn") || strings.HasPrefix(id, "terminal-restart"):
			fmt.Fprintf(&page, `<button id="%[1]s">%[1]s</button>`, id)
		default:
			fmt.Fprintf(&page, `<div id="%[1]s" class="%[1]s %[2]s"></div>`, id, map[bool]string{true: "active"}[id == "tab-chat"])
		}
	}
	for _, name := range scripts {
		fmt.Fprintf(&page, `<script src="%s"></script>`, name)
	}
	return page.String()
}

// say sends a message in the panel's chat.
func (g *gstack) say(text string) {
	g.t.Helper()
	g.until(`!document.getElementById('command-input').disabled`)
	g.run(chromedp.Focus(chromedp.CSS("#command-input")))
	g.write(text)
	g.press("Enter", 13)
}

// untilRows waits until as many elements of a class hold text.
func (g *gstack) untilRows(class, text string, n int) {
	g.t.Helper()
	g.until(fmt.Sprintf(`[...document.querySelectorAll('.%s')].filter((row) => row.innerText.includes(%q)).length === %d`, class, text, n))
}

// untilTerminal waits until the panel's terminal shows text.
func (g *gstack) untilTerminal(text string) {
	g.t.Helper()
	g.until(fmt.Sprintf(`document.querySelector('.xterm-rows')?.innerText.replaceAll('\u00a0', ' ').includes(%q)`, text))
}

// terminals counts those that run.
func (g *gstack) terminals() int {
	g.t.Helper()
	var list struct {
		PTYs []json.RawMessage `json:"ptys"`
	}
	alice := g.s.Ready.User("alice")
	grant, err := alice.Grant(within(g.t), g.s.Ready.SessionID)
	must(g.t, err)
	must(g.t, call(within(g.t), http.StatusOK, &list, http.MethodGet, alice.Base+"/sessions/"+string(g.s.Ready.SessionID)+"/ptys", grant, nil))
	return len(list.PTYs)
}

// TestGstackSeed: the side panel of seed 000, its scripts as they are.
func TestGstackSeed(t *testing.T) {
	g := openGstack(t, "seed")
	g.until(`document.getElementById('footer-dot').className === 'dot'`)
	eval[any](g.window, `void chrome.runtime.sendMessage({type: 'setPort', port: window.gstackServerPort})`)
	g.until(`document.getElementById('footer-dot').className === 'dot connected'`)
	g.until(`document.getElementById('tab-chat').style.display === ''`)
	g.until(`document.getElementById('chat-loading').style.display === 'none' || document.querySelector('.chat-welcome')`)

	// Its activity stream, as the script of the seed's own commit asks for it.
	eval[any](g.window, `void fetch(serverUrl + '/sse-session', {method: 'POST', credentials: 'include', headers: {Authorization: 'Bearer ' + serverToken}})
		.then(() => { window.activity = new EventSource(serverUrl + '/activity/stream?after=0', {withCredentials: true}) })`)
	g.until(`window.activity?.readyState === EventSource.OPEN`)

	g.say("say:good morning to you")
	g.untilRows("agent-text", "good morning to you", 1)
	g.untilRows("user", "say:good morning to you", 1)
	g.until(`!document.getElementById('agent-thinking')`)
	g.shoot("chat")

	// What waits in the queue goes with a stop, which has no body.
	g.say("sleep:1h")
	g.until(`document.getElementById('stop-agent-btn').style.display === ''`)
	g.say("say:this waits")
	g.untilRows("user", "say:this waits", 1)
	eval[any](g.window, `document.getElementById('stop-agent-btn').click()`)
	g.untilRows("agent-error", "Stopped by user", 1)
	g.until(`document.getElementById('stop-agent-btn').style.display === 'none'`)
	g.say("say:here again")
	g.untilRows("agent-text", "here again", 1)
	if n := eval[int](g.window, `[...document.querySelectorAll('.agent-text')].filter((row) => row.innerText.includes('this waits')).length`); n > 0 {
		t.Error("what was stopped was said")
	}
	g.otherTab()
	g.terminal()

	// What was said is there after a reload, once.
	g.run(chromedp.Reload())
	g.untilRows("agent-text", "good morning to you", 1)
	g.untilRows("agent-text", "here again", 1)
	g.untilRows("user", "say:good morning to you", 1)
	g.shoot("again")
	eval[any](g.window, `document.getElementById('clear-chat').click()`)
	g.untilRows("chat-welcome", "Send a message", 1)
	g.say("say:from the beginning")
	g.untilRows("agent-text", "from the beginning", 1)
	g.untilRows("user", "say:", 1)
}

// otherTab has somebody write in another tab, which every panel then shows, and goes
// back by the panel's own function: each tab has its own conversation.
func (g *gstack) otherTab() {
	g.t.Helper()
	first := eval[int](g.window, `sidebarActiveTabId`)
	alice := g.s.Ready.User("alice")
	grant, err := alice.Grant(within(g.t), g.s.Ready.SessionID)
	must(g.t, err)
	must(g.t, call(within(g.t), http.StatusOK, nil, http.MethodPost, alice.Base+"/sidebar-command", grant,
		map[string]any{"message": "say:in another tab", "tabId": first + 1}))
	g.untilRows("agent-text", "in another tab", 1)
	g.untilRows("agent-text", "here again", 0)
	g.until(`document.querySelectorAll('.browser-tab').length > 1`)
	eval[any](g.window, fmt.Sprintf(`document.querySelector('.browser-tab[data-tab-id="%d"]').click()`, first))
	g.untilRows("agent-text", "here again", 1)
	g.untilRows("agent-text", "in another tab", 0)
}

// terminal uses the seed's terminal: nothing runs before a key, nothing afterwards.
func (g *gstack) terminal() {
	g.t.Helper()
	g.until(`document.getElementById('terminal-bootstrap-status').textContent.includes('Press any key')`)
	before := g.terminals()
	eval[any](g.window, `(document.getElementById('tab-chat').classList.remove('active'), document.getElementById('tab-terminal').classList.add('active'), document.activeElement?.blur())`)
	g.press("x", 'X')
	g.untilTerminal("claude stand-in, session")
	g.run(chromedp.Focus(chromedp.CSS(".xterm-helper-textarea")))
	g.write("hello from the seed")
	g.run(chromedp.KeyEvent("\r"))
	g.untilTerminal("You said: hello from the seed")
	g.shoot("terminal")
	if n := g.terminals(); n != before+1 {
		g.t.Errorf("%d terminals, %d before the first key", n, before)
	}
	g.write("/exit")
	g.run(chromedp.KeyEvent("\r"))
	g.until(`document.getElementById('terminal-ended').style.display === ''`)
	eval[any](g.window, `document.getElementById('terminal-restart').click()`)
	eval[any](g.window, `document.activeElement?.blur()`)
	g.press("x", 'X')
	g.untilTerminal("claude stand-in, session")
	eval[any](g.window, `document.getElementById('terminal-mount').style.width = '500px'`)
	g.until(`document.querySelectorAll('.xterm-rows > div').length > 5`)
}

// untilKey types a key until it shows: a panel whose socket is away drops it.
func (g *gstack) untilKey(key string) {
	g.t.Helper()
	shown := fmt.Sprintf(`[...document.querySelectorAll('.xterm-rows > div')].some((row) => row.innerText.trim().startsWith(%q))`, key)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !eval[bool](g.window, shown) {
		g.write(key)
		<-tick.C
	}
}

// TestGstackHead: the terminal of the later panel, its script as it is. It starts
// claude by itself, comes back to it when the relay is killed, and starts it anew.
func TestGstackHead(t *testing.T) {
	g := openGstack(t, "head")
	g.untilTerminal("claude stand-in, session")
	g.run(chromedp.Focus(chromedp.CSS(".xterm-helper-textarea")))
	g.write("before the relay is killed")
	g.run(chromedp.KeyEvent("\r"))
	g.untilTerminal("You said: before the relay is killed")
	session := eval[string](g.window, `window.gstackPtySession`)
	must(t, syscall.Kill(g.s.Ready.Relays[0].PID, syscall.SIGKILL))
	awaitReady(t, g.s.Ready.Relays[0].AdminURL)
	// It writes RIS, and then what rebuilds the screen: once the key is echoed both are
	// there.
	g.untilKey("z")
	g.untilTerminal("You said: before the relay is killed")
	g.write("and afterwards")
	g.run(chromedp.KeyEvent("\r"))
	g.untilTerminal("and afterwards")
	if again := eval[string](g.window, `window.gstackPtySession`); again != session {
		t.Errorf("it came back to %s, not %s", again, session)
	}
	g.shoot("again")
	eval[any](g.window, `document.getElementById('terminal-restart-now').click()`)
	g.until(fmt.Sprintf(`window.gstackPtySession !== %q`, session))
	g.untilTerminal("claude stand-in, session")
	g.until(`!document.querySelector('.xterm-rows').innerText.includes('You')`)
}
