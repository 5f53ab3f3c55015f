package model

import (
	"strings"
	"testing"
)

func TestFor(t *testing.T) {
	long := strings.Repeat("x", 80)
	for message, want := range map[string]string{
		// Examples of the seed.
		"click @e24": Quick, "go to hn": Quick, "screenshot": Quick, "navigate to X and fill the form": Quick,
		"what does this page say?": Thorough, "summarize": Thorough, "find bugs": Thorough, "check for broken links": Thorough,
		// What is asked counts before what is done.
		"click it and tell me": Thorough, "tellme": Thorough, "tell\n\tme": Thorough, "tell us": Thorough,
		"open the page, then explain": Thorough, "WHY": Thorough, "go to hn. How?": Thorough, "howto: click": Quick, "somewhat. click": Quick,
		"read it and click": Thorough, "read it then click": Thorough, "click, read\nand click": Quick, "bread and click": Quick,
		"click read standing": Quick, "click readand": Quick, "read click\u2028and": Quick, "read click\rand": Quick,
		"open it, find a bug": Thorough, "findbugs, open": Thorough, "open, finding debugs": Thorough, "open, find buggy": Quick, "open, refind bugs": Quick,
		"open: find\nbugs": Quick, "click checkfor": Thorough, "click check before": Quick, "click check\nfor": Quick, "click, checkout for": Thorough,
		"reported click": Quick, "report click": Thorough,
		// Short orders.
		"  Go  To x": Quick, "goto x": Quick, "gotox": Thorough, "back": Quick, "backwards": Thorough, "clean up": Quick, "cleanup": Quick, "clean\u00a0up": Quick,
		"hover over it": Quick, "please hover over it": Thorough, "\ufeffsnap\u3000": Quick, "snap " + long[:74]: Quick, "snap " + long[:75]: Thorough,
		"snap " + strings.Repeat("😀", 37): Quick, "snap " + strings.Repeat("😀", 38): Thorough,
		// Orders anywhere.
		long + " fill": Quick, long + " fill in": Quick, long + " fillout": Quick, long + " filling": Thorough, long + " open": Quick, long + " open that": Quick,
		long + " openthis": Quick, long + " opening": Thorough, long + " type in": Quick, long + " type it": Thorough, long + " take screenshot": Quick,
		long + " take a screenshot": Quick, long + " takeascreenshot": Quick, long + " take the screenshot": Thorough, long + " scroll up": Quick,
		long + " scroll away": Thorough, long + " press enter": Quick, long + " press it": Thorough, long + " navigate to": Quick, long + " tap": Quick,
		// Neither, and letters that only look alike.
		"": Thorough, "   ": Thorough, "hello": Thorough, "clic\u212a": Thorough, "\u212aclick": Quick, "öclick": Quick, "_click": Thorough,
	} {
		if got := For(message); got != want {
			t.Errorf("%q is for %s, want %s", message, got, want)
		}
	}
}

func FuzzFor(f *testing.F) {
	for _, seed := range []string{"go to hn", "find the bugs", "read\nand", "take a screenshot", "\u212a", "\xff click", "clean up"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, message string) {
		got := For(message)
		if got != Quick && got != Thorough {
			t.Fatalf("%q is for %q", message, got)
		}
		if again := For("\t \u00a0" + message + "\ufeff\n"); again != got {
			t.Errorf("%q is for %s, with white space around it for %s", message, got, again)
		}
		if again := For(lower(message)); again != got {
			t.Errorf("%q is for %s, in lower case for %s", message, got, again)
		}
		if asked := For(message + "\nwhy"); asked != Thorough {
			t.Errorf("why %q is for %s", message, asked)
		}
	})
}
