package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// pluginPage is a plugin's part in the page of seed 002's web client, as its plugins
// are: a module whose socket is at the name that the program has taken.
const pluginPage = `export function mount(place) {
	const token = encodeURIComponent(localStorage.getItem('auth-token'));
	const socket = new WebSocket(location.origin.replace('http', 'ws') + '/plugin-ws/charts?token=' + token);
	socket.onopen = () => socket.send('from the page');
	socket.onmessage = ({data}) => { place.textContent = 'the plugin says ' + data; };
	socket.onclose = ({code}) => { place.textContent = 'closed with ' + code; };
}`

// tab opens a tab of the web client.
func (w *window) tab(name string) {
	w.t.Helper()
	button := fmt.Sprintf(`[...document.querySelectorAll('button')].find((b) => b.innerText.trim() === %q && b.checkVisibility())`, name)
	w.until(button)
	eval[any](w, button+`.click()`)
}

// untilShell waits until the web client's terminal shows text.
func (w *window) untilShell(text string) {
	w.t.Helper()
	w.until(fmt.Sprintf(`document.querySelector('.xterm-rows')?.innerText.replaceAll('\u00a0', ' ').includes(%q)`, text))
}

// shellLine types a line there.
func (w *window) shellLine(text string) {
	w.t.Helper()
	w.run(chromedp.Focus(chromedp.CSS(".xterm-helper-textarea")))
	w.write(text)
	w.run(chromedp.KeyEvent("\r"))
}

// widths returns how wide the session's terminals are.
func (s *Stack) widths(t *testing.T) (all []int) {
	t.Helper()
	var list struct {
		PTYs []struct {
			Cols int `json:"cols"`
		} `json:"ptys"`
	}
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(within(t), s.Ready.SessionID)
	must(t, err)
	status, body, err := Call(within(t), http.MethodGet, alice.Base+"/sessions/"+string(s.Ready.SessionID)+"/ptys", grant, nil)
	must(t, err)
	if status != http.StatusOK || json.Unmarshal(body, &list) != nil {
		t.Fatalf("terminals: %d %s", status, body)
	}
	for _, one := range list.PTYs {
		all = append(all, one.Cols)
	}
	return all
}

// webClientShell goes on in the web client's shell with what was said by chat.
func webClientShell(t *testing.T, s *Stack, w *window) {
	t.Helper()
	w.tab("Shell")
	w.untilShell("claude stand-in, session")
	w.shellLine("hello from the shell")
	w.untilShell("You said: hello from the shell")
	w.shoot("webclient-shell")
	before := fmt.Sprint(s.widths(t))
	w.run(devtools(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1000, Height: 700, DeviceScaleFactor: 1}))
	within := within(t)
	for fmt.Sprint(s.widths(t)) == before {
		must(t, within.Err())
	}

	w.run(devtools(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: 1280, Height: 900, DeviceScaleFactor: 1}))

	// What rebuilds its screen comes after a reload, to the same program.
	w.run(chromedp.Reload())
	w.untilShell("Reconnected to existing session")
	w.untilShell("You said: hello from the shell")
	w.shellLine("and once more")
	w.untilShell("You said: and once more")
	w.shoot("webclient-shell-again")
	w.shellLine("/exit")
	w.untilShell("Process exited with code 0")
}

// webClientPlugin opens a plugin's part of the web client's page.
func webClientPlugin(t *testing.T, s *Stack, w *window) {
	t.Helper()
	dir := workspace(t, s.Ready.Sandboxes[0].PID)
	install(t, dir, "webapp")
	install(t, dir, "sandbox-agent")
	w.tab("Charts")
	w.until(`document.body.innerText.includes('closed with 4404')`)
	startPlugin(within(t), t, s, "charts")
	w.tab("Chat")
	w.tab("Charts")
	w.until(`document.body.innerText.includes('the plugin says from the page')`)
	w.shoot("webclient-plugin")
}
