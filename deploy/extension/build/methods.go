package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/fairlead/fairlead/protocol/op"
)

// methods is the module with what a command may call on a browser: the one list,
// protocol/op's, for the extension.
func methods() []byte {
	var out bytes.Buffer
	out.WriteString("// What a command may call on a browser: the methods, each with its members, and\n" +
		"// the member that is a URL. Made of protocol/op's list by\n" +
		"// go test ./deploy/extension/build -run TestMethods -update\n\n" +
		"export const methods: ReadonlyMap<string, { members: readonly string[]; url?: string }> = new Map([\n")
	for _, m := range op.CDPMethods() {
		fmt.Fprintf(&out, "  ['%s', { members: [", m.Name)
		if len(m.Members) > 0 {
			fmt.Fprintf(&out, "'%s'", strings.Join(m.Members, "', '"))
		}
		out.WriteString("]")
		if m.URL != "" {
			fmt.Fprintf(&out, ", url: '%s'", m.URL)
		}
		out.WriteString(" }],\n")
	}
	out.WriteString("]);\n")
	return out.Bytes()
}
