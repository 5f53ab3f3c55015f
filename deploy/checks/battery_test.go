package checks

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/deploy/checks/battery"
)

// proofs returns the cases of the threat model, and the tests that there are.
func proofs(t *testing.T) (cases []battery.Case, tests []battery.Test) {
	t.Helper()
	for _, f := range repository(t) {
		var err error
		if f.Path == battery.Table {
			cases, err = battery.Parse(string(f.Text))
		}
		if err != nil {
			t.Fatal(err)
		}
		found, err := battery.Tests(f.Path, f.Text)
		if err != nil {
			t.Fatal(err)
		}
		tests = append(tests, found...)
	}
	if len(tests) < 1000 {
		t.Fatalf("only %d tests: is this the repository?", len(tests))
	}
	return cases, tests
}

// TestEveryCase: each case of the threat model has a test that there is, or
// something isn't built.
func TestEveryCase(t *testing.T) {
	for _, wrong := range battery.Check(proofs(t)) {
		t.Errorf("%s: %s", battery.Table, wrong)
	}
}

// TestEveryWeakness: each weakness of others' systems has a test that there is.
func TestEveryWeakness(t *testing.T) {
	_, tests := proofs(t)
	for _, f := range repository(t) {
		if f.Path != battery.Table {
			continue
		}
		found, err := battery.Weaknesses(string(f.Text), tests)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range found {
			t.Errorf("%s: %s", battery.Table, wrong)
		}
	}
}

// TestFound29CasesHaveTests: the cases that had none have tests with their
// numbers.
func TestFound29CasesHaveTests(t *testing.T) {
	cases, _ := proofs(t)
	for _, n := range []int{34, 35, 37, 40, 42, 59, 102, 103, 104, 106} {
		if !slices.ContainsFunc(cases[n-1].Tests, func(test battery.Test) bool { return test.Case() == n }) {
			t.Errorf("case %d has no test with its number", n)
		}
	}
}
