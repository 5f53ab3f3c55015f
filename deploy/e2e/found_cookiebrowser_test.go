package e2e

import (
	"fmt"
	"testing"
)

// A real browser keeps the cookie that an upgrade leaves, so that a page which
// knows nothing else opens the same address again and again.
func TestFound30BrowserComesBackByCookie(t *testing.T) {
	s := shared(t)
	w := openWindow(t, "cookies", s.Ready.Relays[0].URL+"/#token="+s.Ready.Users["bob"].Token, 1440, 900)
	w.untilText("status", "Connected")
	grant, err := s.Ready.User("bob").Grant(within(t), s.Ready.SessionID)
	must(t, err)
	eval[any](w, fmt.Sprintf(`(window.opened = [], (async () => {
		const answer = await fetch('/pty-session', {method: 'POST', credentials: 'same-origin',
			headers: {'Content-Type': 'application/json', Authorization: 'Bearer ' + %q},
			body: JSON.stringify({session_id: %q, pty_id: %q})});
		const address = (await answer.json()).ws_url;
		const open = () => new Promise((resolve) => {
			const socket = new WebSocket(address + '?user_id=x');
			socket.onmessage = ({data}) => resolve([socket, typeof data === 'string' ? JSON.parse(data).type : 'binary']);
			socket.onclose = ({code}) => resolve([socket, code]);
		});
		for (let i = 0; i < 4; i++) {
			const [socket, first] = await open();
			window.opened.push(first);
			socket.close();
		}
	})().catch((error) => window.opened.push(String(error))), null)`, grant, s.Ready.SessionID, s.Ready.PTYID))
	w.until(`window.opened.length === 4`)
	if got := eval[string](w, `window.opened.join()`); got != "control_state,control_state,control_state,control_state" {
		t.Errorf("the sockets began with %s", got)
	}
}
