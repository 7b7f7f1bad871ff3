package ui_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPagesSayThatTemporalDoesNotAnswer freezes the Temporal server, which is worse than its end: no connection fails.
func TestPagesSayThatTemporalDoesNotAnswer(t *testing.T) {
	f := newFleet(t)
	endpoint := f.startAgent("alpha")
	f.startPool("model", 1)
	b := newBrowser(t)
	b.open(endpoint + "/ui/")
	b.await("the fleet is shown", `document.querySelector("#pool-model")`)
	freeze := func(signal syscall.Signal) { require.NoError(t, syscall.Kill(f.server.PID(), signal)) }
	freeze(syscall.SIGSTOP)
	frozen := true
	thaw := func() {
		if frozen {
			freeze(syscall.SIGCONT)
		}
		frozen = false
	}
	t.Cleanup(thaw)
	b.await("the page says so without a reload, and shows what was known",
		`document.querySelector("#notices").innerText.includes("Temporal has not answered") && `+
			`document.querySelector("#pool-model")`)
	b.shot("outage")
	for _, path := range []string{"/ui/", "/ui/pools/model", "/ui/pools/model/workers/0", "/ui/events",
		"/ui/sessions?pool=model"} {
		began := time.Now()
		b.open(endpoint + path) // within its time-out
		t.Logf("%s took %s", path, time.Since(began).Round(time.Millisecond))
		require.Contains(t, evaluate[string](b, `document.querySelector("#notices").innerText`), "Temporal has not answered",
			path)
	}
	b.open(endpoint + "/ui/")
	thaw()
	b.await("the page recovers without a reload",
		`document.querySelector("#notices").innerText.trim() === "" && `+
			`document.querySelector("#pool-model").innerText.includes("1 of 1")`)
}
