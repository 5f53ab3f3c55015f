package shellapi

import "strings"

// loginWords are those by which a command signs somebody in.
var loginWords = map[string]bool{"login": true, "/login": true, "setup-token": true}

// signsIn reports whether a command signs somebody in. Then what runs already is of
// no use, as its address has been opened or is too old: it is started anew.
func signsIn(command string) bool {
	for _, word := range strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(" \t\r\n;&|()<>'\"`", r) }) {
		if loginWords[word] {
			return true
		}
	}
	return false
}
