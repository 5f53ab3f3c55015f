package pause

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().Add(time.Minute)
		if err := Until(t.Context(), at); err != nil || !time.Now().Equal(at) {
			t.Errorf("%v, %v early", err, time.Until(at))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := For(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if took := time.Since(at); took != time.Second {
			t.Errorf("it took %v", took)
		}
		if err := Until(ctx, at); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a moment that has passed: %v", err)
		}
	})
}
