package grafana

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A query is what an expression in PromQL refers to. There is no more to it than
// what names can be wrong in: no types, no precedence.
type query struct {
	selectors []selector
	labels    []string // that it groups or matches by
}

// A selector is a metric with its matchers.
type selector struct {
	metric   string
	matchers []matcher
	ranged   bool
	within   string // the function or aggregation whose argument it is
}

type matcher struct{ label, op, value string }

var (
	aggregations = []string{"sum", "min", "max", "avg", "count", "topk", "bottomk"}
	functions    = []string{"rate", "increase", "histogram_quantile", "scalar", "time", "predict_linear"}
	ranging      = []string{"rate", "increase", "predict_linear"}
	grouping     = []string{"by", "without", "on", "ignoring", "group_left", "group_right"}
	operators    = []string{"and", "or", "unless"}

	duration = `(?:\d+(?:ms|[smhdwy]))+`
	token    = regexp.MustCompile(`^(?:\s+|"(?:[^"\\]|\\.)*"|` + duration + `|\d+(?:\.\d+)?(?:e-?\d+)?|\$?[a-zA-Z_:][\w:]*|==|!=|=~|!~|>=|<=|[-+*/%^(){}\[\],=<>])`)
	isName   = regexp.MustCompile(`^[a-zA-Z_]\w*$`)
	variable = regexp.MustCompile(`^(?:\$__rate_interval|` + duration + `)$`)
)

// A parser reads one expression.
type parser struct {
	rest  []string
	open  []string // brackets
	calls []string // whose argument lists are open; empty for a plain bracket
	query query
}

// parse reads an expression, or says what is wrong with it.
func parse(expr string) (query, error) {
	p := parser{}
	for rest := expr; rest != ""; {
		t := token.FindString(rest)
		if t == "" {
			return query{}, fmt.Errorf("at %.20q", rest)
		}
		if strings.TrimSpace(t) != "" {
			p.rest = append(p.rest, t)
		}
		rest = rest[len(t):]
	}
	called := "" // who opens the next bracket
	for len(p.rest) > 0 {
		t := p.next()
		var err error
		called, err = p.take(t, called)
		if err != nil {
			return query{}, err
		}
	}
	if len(p.open) > 0 {
		return query{}, fmt.Errorf("%s is never closed", p.open[len(p.open)-1])
	}
	return p.query, nil
}

func (p *parser) next() string {
	t := p.rest[0]
	p.rest = p.rest[1:]
	return t
}

func (p *parser) peek() string {
	if len(p.rest) == 0 {
		return ""
	}
	return p.rest[0]
}

// take reads what begins with t; called is the name before it, if that is of an
// aggregation or a function. It returns that for the next token.
func (p *parser) take(t, called string) (string, error) {
	switch {
	case t == "(":
		p.open, p.calls = append(p.open, t), append(p.calls, called)
	case t == ")":
		if len(p.open) == 0 {
			return "", fmt.Errorf("%s closes nothing", t)
		}
		p.open, p.calls = p.open[:len(p.open)-1], p.calls[:len(p.calls)-1]
	case slices.Contains(grouping, t):
		return called, p.list()
	case slices.Contains(aggregations, t):
		return t, nil
	case slices.Contains(operators, t):
	case t == "offset":
		if !variable.MatchString(p.next()) {
			return "", fmt.Errorf("offset of no duration")
		}
	case isName.MatchString(t):
		if p.peek() != "(" {
			return "", p.selector(t)
		}
		if !slices.Contains(functions, t) {
			return "", fmt.Errorf("no function %s is known", t)
		}
		return t, nil
	case strings.ContainsAny(t, "{}[]=\"$") && t != "==" && t != "!=" && t != ">=" && t != "<=":
		return "", fmt.Errorf("%s stands alone", t)
	}
	return "", nil
}

// list reads the labels after by and its like.
func (p *parser) list() error {
	if p.next() != "(" {
		return fmt.Errorf("no list of labels")
	}
	for len(p.rest) > 0 {
		switch t := p.next(); t {
		case ")":
			return nil
		case ",":
		default:
			if !isName.MatchString(t) {
				return fmt.Errorf("%s among labels", t)
			}
			p.query.labels = append(p.query.labels, t)
		}
	}
	return fmt.Errorf("a list of labels is never closed")
}

// selector reads what follows the name of a metric.
func (p *parser) selector(name string) error {
	s := selector{metric: name}
	if len(p.calls) > 0 {
		s.within = p.calls[len(p.calls)-1]
	}
	if p.peek() == "{" {
		p.next()
		for p.peek() != "}" {
			if len(p.rest) < 4 {
				return fmt.Errorf("the matchers of %s are never closed", name)
			}
			m := matcher{p.next(), p.next(), strings.Trim(p.next(), `"`)}
			if !slices.Contains([]string{"=", "!=", "=~", "!~"}, m.op) {
				return fmt.Errorf("%s: %s is no matcher", name, m.op)
			}
			s.matchers = append(s.matchers, m)
			if p.peek() == "," {
				p.next()
			}
		}
		p.next()
	}
	if p.peek() == "[" {
		p.next()
		if t := p.next(); !variable.MatchString(t) {
			return fmt.Errorf("%s over %s", name, t)
		}
		if len(p.rest) == 0 || p.next() != "]" {
			return fmt.Errorf("the range of %s is never closed", name)
		}
		s.ranged = true
	}
	p.query.selectors = append(p.query.selectors, s)
	return nil
}

// TestParser: the parser that checks the rest sees what is there.
func TestParser(t *testing.T) {
	q, err := parse(`histogram_quantile(0.99, sum by (le, instance) (rate(a_bucket{of="x|y", instance=~"$instance"}[$__rate_interval]))) > 0.5 and on (job) sum(b offset 15m) / 1e6 == 2`)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(q); got != `{[{a_bucket [{of = x|y} {instance =~ $instance}] true rate} {b [] false sum}] [le instance job]}` {
		t.Error(got)
	}
	for _, bad := range []string{
		`sum(a`, `a)`, `sum by (le (a)`, `rate(a[5m)`, `rate(a[five])`, `ratee(a[5m])`, `a{x="1"`, `a{x~"1"}`, `{x="1"}`, `a ? b`, `sum(a offset b)`,
	} {
		if q, err := parse(bad); err == nil {
			t.Errorf("%s is read as %v", bad, q)
		}
	}
}
