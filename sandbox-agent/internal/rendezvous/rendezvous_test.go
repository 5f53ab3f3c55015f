package rendezvous

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fairlead/fairlead/protocol"
)

// many is how many sandboxes are spread.
const many = 10_000

func sandbox(i int) protocol.SandboxID { return protocol.SandboxID(fmt.Sprintf("sb_%d", i)) }

// relays returns n of them.
func relays(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("relay-%d.example:7443", i)
	}
	return list
}

// near checks a number of sandboxes against the one that is expected of so many,
// by four standard deviations.
func near(t *testing.T, what string, got, of int, share float64) {
	t.Helper()
	want := float64(of) * share
	if off := math.Abs(float64(got) - want); off > 4*math.Sqrt(want*(1-share)) {
		t.Errorf("%s: %d of %d, want about %.0f", what, got, of, want)
	}
}

// TestShares: each relay is the first of as many sandboxes as any other, and of
// those each other relay is the second equally often. So when a relay leaves, its
// own are spread evenly, and when one comes it takes its share.
func TestShares(t *testing.T) {
	for n := 3; n <= 10; n++ {
		list := relays(n)
		firsts, seconds := map[string]int{}, map[[2]string]int{}
		for i := range many {
			order := Order(sandbox(i), list)
			firsts[order[0]]++
			seconds[[2]string{order[0], order[1]}]++
		}
		for _, first := range list {
			near(t, fmt.Sprintf("of %d, %s is first", n, first), firsts[first], many, 1/float64(n))
			for _, second := range list {
				if second != first {
					near(t, fmt.Sprintf("of %d, %s comes after %s", n, second, first),
						seconds[[2]string{first, second}], firsts[first], 1/float64(n-1))
				}
			}
		}
	}
}

// TestLeastMovement: without a relay the order of all others is what it was with
// it. So one that leaves moves its own sandboxes alone, and one that comes those
// alone that come to it.
func TestLeastMovement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := relays(rapid.IntRange(1, 10).Draw(t, "relays"))
		id := protocol.SandboxID(rapid.StringMatching(`[a-zA-Z0-9_-]{1,64}`).Draw(t, "sandbox"))
		one := rapid.SampledFrom(list).Draw(t, "one")
		without := func(list []string) []string {
			return slices.DeleteFunc(slices.Clone(list), func(relay string) bool { return relay == one })
		}
		if got, want := Order(id, without(list)), without(Order(id, list)); !slices.Equal(got, want) {
			t.Errorf("without %s: %q, the others were %q", one, got, want)
		}
	})
}

// TestOrderOfASet: neither the order of the list nor repetitions change anything,
// and the list is left as it was.
func TestOrderOfASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := relays(rapid.IntRange(1, 10).Draw(t, "relays"))
		id := sandbox(rapid.Int().Draw(t, "sandbox"))
		want := Order(id, list)
		again := rapid.Permutation(append(slices.Clone(list), rapid.SliceOf(rapid.SampledFrom(list)).Draw(t, "repeated")...)).Draw(t, "list")
		before := slices.Clone(again)
		if got := Order(id, again); !slices.Equal(got, want) || len(got) != len(list) {
			t.Errorf("%q, want %q", got, want)
		}
		if !slices.Equal(again, before) {
			t.Error("the list has changed")
		}
	})
}

// TestGolden: the weights are those that every version has. They are also what
// printf 'ID\0ADDRESS' | sha256sum begins with.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		id    protocol.SandboxID
		relay string
		want  uint64
	}{
		{"sb_1", "relay-1.example:7443", 0xbc2dfe084c7de5b6},
		{"sb_1", "relay-2.example:7443", 0xc878293a946b7e1f},
		{"sb_1", "relay-3.example:7443", 0x99aeb8a362987685},
		{"sb_2", "relay-1.example:7443", 0x74b752ba715874cb},
		{"sb_1", "[2001:db8::1]:7443", 0x07a2fb7d53a3809b},
		{"", "", 0x6e340b9cffb37a98},
	} {
		if got := weight(c.id, c.relay); got != c.want {
			t.Errorf("weight(%q, %q) = %#016x", c.id, c.relay, got)
		}
	}
	list := []string{"relay-1.example:7443", "relay-2.example:7443", "relay-3.example:7443"}
	for id, want := range map[protocol.SandboxID][]int{"sb_1": {2, 1, 3}, "sb_2": {3, 2, 1}, "sb_3": {2, 1, 3}} {
		var got []int
		for _, relay := range Order(id, list) {
			got = append(got, slices.Index(list, relay)+1)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v", id, got)
		}
	}
	if got := Order("sb_1", nil); len(got) != 0 {
		t.Errorf("of none: %q", got)
	}
}
