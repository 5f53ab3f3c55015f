package impair

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// none is the written profile of a link that does nothing.
const none = "none"

// Parse reads a profile as String writes it: "delay=25ms,rate=20mbit,loss=2%".
// Each key is for both directions, or after "up." or "down." for one; what
// comes later counts. "" and "none" are the zero Profile.
func Parse(text string) (Profile, error) {
	var p Profile
	if text == "" || text == none {
		return p, nil
	}
	for pair := range strings.SplitSeq(text, ",") {
		if err := p.set(pair); err != nil {
			return Profile{}, fmt.Errorf("profile: %w", err)
		}
	}
	return p, p.Validate()
}

func (p *Profile) set(pair string) error {
	name, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
	if !ok {
		return fmt.Errorf("%q is not key=value", pair)
	}
	paths := []*Path{&p.Up, &p.Down}
	bare := name
	if rest, ok := strings.CutPrefix(name, "up."); ok {
		bare, paths = rest, paths[:1]
	} else if rest, ok := strings.CutPrefix(name, "down."); ok {
		bare, paths = rest, paths[1:]
	}
	for _, k := range keys {
		if k.name != bare {
			continue
		}
		for _, path := range paths {
			if err := k.parse(path, value); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	}
	return fmt.Errorf("unknown key %q; there are %s, also after \"up.\" and \"down.\"", name, strings.Join(names(), ", "))
}

func names() []string {
	var list []string
	for _, k := range keys {
		list = append(list, k.name)
	}
	return list
}

// Validate reports what is out of bounds.
func (p Profile) Validate() error {
	for i, path := range []Path{p.Up, p.Down} {
		if err := path.validate(); err != nil {
			return fmt.Errorf("profile: %s: %w", Side(i), err)
		}
	}
	return nil
}

func (p Path) validate() error {
	switch {
	case p.Delay < 0 || p.Delay > MaxDelay:
		return fmt.Errorf("a delay of %v is not between 0 and %v", p.Delay, MaxDelay)
	case p.Jitter < 0 || p.Jitter > p.Delay:
		return fmt.Errorf("a jitter of %v is not between 0 and the delay, %v", p.Jitter, p.Delay)
	case p.Rate != 0 && (p.Rate < MinRate || p.Rate > MaxRate):
		return fmt.Errorf("a rate of %d bit/s is not between %d and %d", p.Rate, MinRate, int64(MaxRate))
	case p.Queue < 0 || p.Queue > MaxQueue:
		return fmt.Errorf("a queue of %d bytes is not between 0 and %d", p.Queue, MaxQueue)
	case p.Hold < 0 || p.Hold > MaxDelay:
		return fmt.Errorf("a hold of %v is not between 0 and %v", p.Hold, MaxDelay)
	}
	for _, part := range []float64{p.Loss, p.Duplicate, p.Reorder} {
		if !(part >= 0 && part <= 1) {
			return fmt.Errorf("%v is not a part between 0%% and 100%%", part)
		}
	}
	return nil
}

// ValidateTCP reports what is out of bounds for a TCP link.
func (p Profile) ValidateTCP() error {
	for _, path := range []Path{p.Up, p.Down} {
		if path.Loss > 0 || path.Duplicate > 0 || path.Reorder > 0 {
			return errors.New("profile: loss, duplicate and reorder are for UDP: a TCP connection never shows them")
		}
	}
	return p.Validate()
}

// String writes the profile so that Parse reads the same.
func (p Profile) String() string {
	var list []string
	for _, k := range keys {
		up, down := k.text(&p.Up), k.text(&p.Down)
		if up == down {
			if up != "" {
				list = append(list, k.name+"="+up)
			}
			continue
		}
		if up != "" {
			list = append(list, "up."+k.name+"="+up)
		}
		if down != "" {
			list = append(list, "down."+k.name+"="+down)
		}
	}
	if len(list) == 0 {
		return none
	}
	return strings.Join(list, ",")
}

// MarshalText implements encoding.TextMarshaler.
func (p Profile) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Profile) UnmarshalText(text []byte) (err error) {
	*p, err = Parse(string(text))
	return err
}

type key struct {
	name  string
	parse func(*Path, string) error
	text  func(*Path) string // "": the zero value
}

// keys are the keys of a written profile, in the order in which they are
// written.
var keys = []key{
	durationKey("delay", func(p *Path) *time.Duration { return &p.Delay }),
	durationKey("jitter", func(p *Path) *time.Duration { return &p.Jitter }),
	unitKey("rate", rateUnits, func(p *Path) *int64 { return &p.Rate }),
	unitKey("queue", byteUnits, func(p *Path) *int64 { return &p.Queue }),
	partKey("loss", func(p *Path) *float64 { return &p.Loss }),
	partKey("duplicate", func(p *Path) *float64 { return &p.Duplicate }),
	partKey("reorder", func(p *Path) *float64 { return &p.Reorder }),
	durationKey("hold", func(p *Path) *time.Duration { return &p.Hold }),
}

func durationKey(name string, field func(*Path) *time.Duration) key {
	return key{
		name: name,
		parse: func(p *Path, s string) (err error) {
			*field(p), err = time.ParseDuration(s)
			return err
		},
		text: func(p *Path) string {
			if *field(p) == 0 {
				return ""
			}
			return field(p).String()
		},
	}
}

// A unit is how a number may be written; of several the longest fits first.
type unit struct {
	suffix string
	size   int64
}

var (
	rateUnits = []unit{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}
	byteUnits = []unit{{"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
)

func unitKey(name string, units []unit, field func(*Path) *int64) key {
	return key{
		name: name,
		parse: func(p *Path, s string) (err error) {
			*field(p), err = parseUnit(s, units)
			return err
		},
		text: func(p *Path) string {
			n := *field(p)
			if n == 0 {
				return ""
			}
			for _, u := range units {
				if n%u.size == 0 {
					return strconv.FormatInt(n/u.size, 10) + u.suffix
				}
			}
			return ""
		},
	}
}

func parseUnit(s string, units []unit) (int64, error) {
	var suffixes []string
	for _, u := range units {
		suffixes = append(suffixes, u.suffix)
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(digits, 64)
		if n *= float64(u.size); err != nil || !(n >= 0 && n <= 1<<53) || n != float64(int64(n)) {
			return 0, fmt.Errorf("%q is not a whole number of %s", s, units[len(units)-1].suffix)
		}
		return int64(n), nil
	}
	return 0, fmt.Errorf("%q needs a unit: %s", s, strings.Join(suffixes, ", "))
}

func partKey(name string, field func(*Path) *float64) key {
	return key{
		name: name,
		parse: func(p *Path, s string) (err error) {
			*field(p), err = parsePart(s)
			return err
		},
		text: func(p *Path) string {
			part := *field(p)
			if part == 0 {
				return ""
			}
			percent := strconv.FormatFloat(part*100, 'f', -1, 64)
			short := strconv.FormatFloat(part*100, 'g', 15, 64) // without what binary fractions add
			for _, s := range []string{short + "%", percent + "%"} {
				if back, err := parsePart(s); err == nil && back == part {
					return s
				}
			}
			return strconv.FormatFloat(part, 'g', -1, 64)
		},
	}
}

// parsePart reads "2%" or "0.02".
func parsePart(s string) (float64, error) {
	number := s
	if percent, ok := strings.CutSuffix(s, "%"); ok {
		number = percent + "e-2" // exact, as a division isn't
	}
	part, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is neither a percentage nor a fraction", s)
	}
	return part, nil
}
