package wire

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(goWorkerDir)
		os.Exit(code)
	}))
}

// errorOf is the error of a call whose result does not matter.
func errorOf[T any](_ T, err error) error { return err }

// background calls run in a goroutine and delivers its result.
func background[T any](run func() T) <-chan T {
	done := make(chan T, 1)
	go func() { done <- run() }()
	return done
}

func await[T any](t testing.TB, from <-chan T) T {
	select {
	case v := <-from:
		return v
	case <-time.After(waitTimeout):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}
