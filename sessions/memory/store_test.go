package memory

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryDoesWhatEveryStoreMust(t *testing.T) {
	open := func(_ *testing.T, config sessions.Config) sessions.Store { return Open(config) }
	storetest.Run(t, open)
	storetest.RunReplica(t, open)
}
