package activity

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fairlead/fairlead/protocol/taburl"
)

// maxArgument bounds one argument, in characters.
const maxArgument = 512

// hidden stands for what is secret.
const hidden = taburl.Hidden

// Commands of the seed whose arguments or ends are special here.
const (
	commandGoto = "goto"
	commandFill = "fill"
	commandType = "type"
)

// commands are what the seed calls what a tool does.
var commands = map[string]string{
	"browser_start": "connect", "browser_stop": "disconnect", "browser_status": "status", "browser_navigate": commandGoto,
	"browser_screenshot": "screenshot", "browser_click": "click", "browser_get_content": "text", "browser_get_html": "html",
	"browser_get_url": "url", "browser_get_title": "title", "browser_wait": "wait", "browser_evaluate": "js", "browser_scroll": "scroll",
	"browser_tabs": "tabs", "browser_tab_open": "newtab", "browser_tab_close": "closetab", "browser_tab_switch": "tab",
}

// describe returns what the panel is told of a call.
func describe(tool string, raw json.RawMessage) (command string, args []string, address string) {
	var a struct {
		URL      string   `json:"url"`
		Selector string   `json:"selector"`
		Text     *string  `json:"text"`
		Clear    bool     `json:"clear"`
		State    string   `json:"state"`
		Script   string   `json:"script"`
		FullPage bool     `json:"full_page"`
		X        *float64 `json:"x"`
		Y        *float64 `json:"y"`
	}
	_ = json.Unmarshal(raw, &a) // the tool says what is wrong
	if command = commands[tool]; tool == "browser_type" {
		if command = commandType; a.Clear {
			command = commandFill
		}
	} else if command == "" {
		command = argument(tool)
	}
	show := func(text string) {
		if text != "" {
			args = append(args, argument(text))
		}
	}
	if address = taburl.Mask(argument(a.URL)); address != "" {
		args = append(args, address)
	}
	switch {
	case command == commandType:
		show(hide(a.Selector))
	default:
		show(a.Selector)
	}
	if a.Text != nil {
		if command == commandFill && !secretField(a.Selector) {
			show(*a.Text)
		} else {
			show(hidden)
		}
	}
	if secretScript(a.Script) {
		a.Script = hidden
	}
	show(a.State)
	show(a.Script)
	if a.FullPage {
		show("full page")
	}
	for _, n := range []*float64{a.X, a.Y} {
		if n != nil {
			show(strconv.FormatFloat(*n, 'g', -1, 64))
		}
	}
	return command, args, address
}

func hide(text string) string {
	if text == "" {
		return ""
	}
	return hidden
}

// argument is an argument of bounded length.
func argument(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if utf8.RuneCountInString(text) > maxArgument {
		return string([]rune(text)[:maxArgument]) + "..."
	}
	return text
}

// secretField reports whether a selector is of a field for what is secret.
func secretField(selector string) bool {
	selector = strings.ToLower(selector)
	return slices.ContainsFunc([]string{"password", "passwd", "secret", "token"}, func(word string) bool { return strings.Contains(selector, word) })
}

// secretScript reports whether a script may hold the value of a header or cookie.
func secretScript(script string) bool {
	script = strings.ToLower(script)
	return slices.ContainsFunc([]string{"cookie", "header", "authorization", "bearer"}, func(word string) bool { return strings.Contains(script, word) })
}
