package provider

import (
	"fmt"

	"github.com/fairlead/fairlead/protocol"
)

// failure is an error that ends a run.
func failure(text string) Effect {
	return Emit{protocol.ChatEvent{Kind: protocol.ChatError, Content: &text}}
}

// ended says why a program's end is the failure of a turn, and with which status
// the turn is done. The reason is the end of stderr, or else noise: what it has
// printed where its protocol was expected.
func ended(program string, exitCode int, stderr, noise []byte) (text string, code int) {
	text = fmt.Sprintf("%s has ended with status %d", program, exitCode)
	if said := reason(stderr); said != "" {
		text += ": " + said
	} else if said := reason(noise); said != "" {
		text += ": " + said
	}
	if exitCode == 0 { // it has not answered
		exitCode = 1
	}
	return text, exitCode
}
