package scenario

import (
	"errors"
	"math"
	"testing"
)

func TestHighestClimbsAndDescends(t *testing.T) {
	for _, tt := range []struct{ from, limit float64 }{
		{40, 200}, {400, 200}, {200, 200}, {40, 40.5}, {3, 1.5}, {1e4, 1e9},
	} {
		tries := 0
		got, err := highest(tt.from, func(rate float64) (bool, error) {
			tries++
			return rate <= tt.limit, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		best := math.Min(tt.limit, mostRate)
		if got > best || got*rung <= best && got*rung <= mostRate {
			t.Errorf("from %v up to %v: %v after %d tries", tt.from, tt.limit, got, tries)
		}
	}
}

func TestHighestWithoutOne(t *testing.T) {
	if got, err := highest(40, func(float64) (bool, error) { return false, nil }); got != 0 || err != nil {
		t.Errorf("%v %v", got, err)
	}
	broken := errors.New("broken")
	for _, after := range []int{0, 1, 2} {
		_, err := highest(40, func(rate float64) (bool, error) {
			if after--; after < 0 {
				return false, broken
			}
			return rate < 60, nil
		})
		if !errors.Is(err, broken) {
			t.Errorf("the error is gone: %v", err)
		}
	}
}

func TestNearComesWithinTwice(t *testing.T) {
	for _, tt := range []struct{ from, limit float64 }{{40, 200}, {400, 200}, {200, 200}, {3, 1.5}, {3, 0.1}, {1e4, 1e9}} {
		got, err := near(tt.from, func(rate float64) (bool, error) { return rate <= tt.limit, nil })
		best := math.Max(math.Min(tt.limit, mostRate), lowestRate)
		if err != nil || got > best || got*2 <= best && got*2 <= mostRate {
			t.Errorf("from %v up to %v: %v %v", tt.from, tt.limit, got, err)
		}
	}
	broken := errors.New("broken")
	if _, err := near(40, func(rate float64) (bool, error) { return true, broken }); !errors.Is(err, broken) {
		t.Errorf("the error is gone: %v", err)
	}
}
