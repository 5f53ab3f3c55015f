package egress

import (
	"testing"

	"go.uber.org/goleak"
)

// run runs the tests and reports goroutines that they leave.
func run(m *testing.M) int {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			return 1
		}
	}
	return code
}
