// Package optest has an example of each operation, for tests.
package optest

// Whole is one good op of each kind, with every member that it can have, as it is
// signed.
var Whole = map[string]string{
	"session.create":       `{"kind":"session.create","egress":true}`,
	"session.delete":       `{"kind":"session.delete"}`,
	"pty.create":           `{"kind":"pty.create","creatorId":"usr_1","creatorName":"a b","command":"top","args":["top"],"dir":"a","cols":80,"rows":24,"record":true,"egress":false}`,
	"pty.close":            `{"kind":"pty.close"}`,
	"pty.signal":           `{"kind":"pty.signal","signal":"INT"}`,
	"pty.resize":           `{"kind":"pty.resize","cols":80,"rows":24}`,
	"record.start":         `{"kind":"record.start"}`,
	"record.stop":          `{"kind":"record.stop"}`,
	"terminal.share":       `{"kind":"terminal.share","pty":"pty_1","with":"session"}`,
	"panel.tab":            `{"kind":"panel.tab","tabId":7,"url":"https://a.example/","title":"A"}`,
	"agent.start":          `{"kind":"agent.start","name":"claude","command":"claude","args":["-p"]}`,
	"agent.pause":          `{"kind":"agent.pause"}`,
	"agent.resume":         `{"kind":"agent.resume"}`,
	"agent.stop":           `{"kind":"agent.stop"}`,
	"grant.revoke":         `{"kind":"grant.revoke","grants":["gr_1"]}`,
	"env.apply":            `{"kind":"env.apply","names":["A"],"sealed":"AAAA","unset":["B"],"applyNow":true}`,
	"egress.decide":        `{"kind":"egress.decide","approvalId":"apr_1","revision":1,"decision":"deny"}`,
	"egress.revoke":        `{"kind":"egress.revoke","pattern":"a.example"}`,
	"broker.decide":        `{"kind":"broker.decide","secret":"TOKEN","domain":"a.example","decision":"deny_always"}`,
	"cdp.send":             `{"kind":"cdp.send","method":"Page.navigate","params":{"url":"about:blank"}}`,
	"integrations.changed": `{"kind":"integrations.changed"}`,
	"chat.create":          `{"kind":"chat.create","conversation":"c-1","provider":"claude","projectPath":"a","title":"t"}`,
	"chat.send":            `{"kind":"chat.send","conversation":"c-1","message":{"content":"hi","images":[{"name":"a","data":"data:image/png;base64,AA==","size":1,"mimeType":"image/png"}]},"senderName":"a b","clientMessageId":"m 1","options":{"model":"m","permissionMode":"plan","cwd":"a","allowedTools":["Read"],"disallowedTools":["Bash"],"skipPermissions":true}}`,
	"chat.abort":           `{"kind":"chat.abort","conversation":"c-1"}`,
	"sidebar.send":         `{"kind":"sidebar.send","message":"go","url":"https://a.example/","tabId":1,"senderName":"a b"}`,
	"sidebar.stop":         `{"kind":"sidebar.stop","tabId":1,"kill":true}`,
	"sidebar.clear":        `{"kind":"sidebar.clear","tabId":1}`,
	"sidebar.dismiss":      `{"kind":"sidebar.dismiss","index":0,"tabId":1}`,
	"sidebar.switch":       `{"kind":"sidebar.switch","tabId":1}`,
	"sidebar.new":          `{"kind":"sidebar.new"}`,
	"tool.decide":          `{"kind":"tool.decide","approval":"apr_1","revision":1,"decision":"allow_always","updatedInput":{"command":"ls"},"remember":"Bash(ls:*)"}`,
}
