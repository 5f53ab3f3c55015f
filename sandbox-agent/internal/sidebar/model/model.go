// Package model decides which model a message to the side panel's agent is for
// (seed 000): a quick one for what is done, a thorough one for what is asked.
package model

import (
	"regexp"
	"strings"
	"unicode/utf16"
)

// The two models, by the names under which claude knows its newest ones.
const (
	Thorough = "opus"
	Quick    = "sonnet"
)

// briefly is how long an order may be, in UTF-16 units: seed 000 counts them so.
const briefly = 80

// gap is any amount of what browsers count as white space, also none; rest is
// anything up to the end of the line.
const (
	spaces = `\t\n\v\f\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`
	gap    = `[` + spaces + `]*`
	rest   = `[^\n\r\x{2028}\x{2029}]*`
)

// The words are compared in lower case, of ASCII alone: (?i) would take the
// Kelvin sign for a k.
var (
	asks = regexp.MustCompile(`\b(what|why|how|explain|describe|summarize|analyze|compare|review|assess|evaluate|report|` +
		`tell` + gap + `me|read\b` + rest + `\b(and|then)|find` + rest + `bugs?|check` + rest + `for)\b`)
	orders = regexp.MustCompile(`^(go` + gap + `to|open|navigate|click|tap|press|fill|type|enter|scroll|screenshot|snap|reload|refresh|` +
		`back|forward|close|submit|select|toggle|expand|collapse|dismiss|accept|upload|download|focus|hover|clean` + gap + `up)\b`)
	acts = regexp.MustCompile(`\b(go` + gap + `to|click|tap|fill(` + gap + `(in|out))?|type` + gap + `in|navigate` + gap + `to|` +
		`open(` + gap + `(the|this|that))?|take` + gap + `a?` + gap + `screenshot|scroll` + gap + `(down|up|to)|reload|refresh|submit|` +
		`press` + gap + `(the|enter|button))\b`)
	around = regexp.MustCompile(`^[` + spaces + `]+|[` + spaces + `]+$`)
)

// For returns the model for a message.
func For(message string) string {
	text := lower(around.ReplaceAllString(message, ""))
	switch {
	case asks.MatchString(text):
		return Thorough
	case len(utf16.Encode([]rune(text))) < briefly && orders.MatchString(text), acts.MatchString(text):
		return Quick
	}
	return Thorough
}

// lower is text with its ASCII letters in lower case.
func lower(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}
