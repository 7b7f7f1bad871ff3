package ui_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/spec"
)

// TestAnOperatorWorksByKeyboard finds out why a worker restarted and who holds one, drains a host, halts a rollout and
// finds out why another one has halted, with nothing but keys.
func TestAnOperatorWorksByKeyboard(t *testing.T) {
	axe := axeSource(t)
	f := newFleet(t)
	f.startAgent("alpha", "--capacity", "2")
	pool := f.startPool("leak", 2, func(s *spec.Spec) { s.Rotation.MaxMemory = 96 << 20 })
	f.startAgent("beta", "--capacity", "4")
	_, err := pool.Worker(0).CallRaw(t.Context(), "leak", []byte(`{"mib": 100}`))
	require.NoError(t, err)
	f.await(pool, "the worker that leaks is replaced", func(v api.PoolWorkers) bool {
		return v.Ready == 2 && v.Workers[0].Incarnation > 1
	})

	b := newBrowser(t)
	b.open(f.signInLink("beta"))
	b.await("the fleet is shown", `document.querySelectorAll("#hosts tbody tr").length === 2`)
	b.follow("leak")
	b.search("leak/0")
	b.await("the roster is filtered", `document.querySelectorAll("#roster tbody tr").length === 1`)
	b.follow("leak/0")
	b.await("why it restarted is shown",
		`/uses \d+ MB of memory \(limit 101 MB, rotation.max_memory\)/.test(document.querySelector("#timeline").innerText)`)

	lease, err := pool.Checkout(t.Context(), tempool.CheckoutOptions{Holder: "ada"})
	require.NoError(t, err)
	b.follow("leak")
	b.await("its holder is shown",
		`[...document.querySelectorAll("#roster tbody tr")].some(row => row.innerText.includes("ada"))`)
	b.fits()
	b.search("ada")
	b.await("what ada holds is found", `document.querySelectorAll("#roster tbody tr").length === 1`)
	b.follow(lease.Worker)
	b.follow("Release lease…")
	b.follow("Release lease")
	b.await("nobody holds it", `document.querySelector("#lease").innerText.includes("Nobody holds it.")`)

	b.follow("Fleet")
	b.follow("Drain…") // of alpha
	b.tabTo("reason")
	b.press("new kernel")
	b.follow("Drain")
	require.Contains(t, evaluate[string](b, `document.querySelector("#notices").innerText`), "takes no new workers")
	b.await("the host is empty, live", `(text => text.includes("draining") && text.includes("0 of 2"))`+
		`(document.querySelector("#host-alpha").innerText)`)
	f.await(pool, "its workers are on the other host", func(v api.PoolWorkers) bool {
		return v.Ready == 2 && v.Workers[0].Host == "beta" && v.Workers[1].Host == "beta"
	})
	b.follow("Undrain…")
	b.follow("Undrain")
	b.await("the host takes workers again", `document.querySelector("#host-alpha").innerText.includes("up")`)

	status, err := pool.Status(t.Context())
	require.NoError(t, err)
	status.Spec.Pool.Command, status.Spec.Start.Timeout = []string{"sleep", "1000"}, spec.Duration(3*time.Second)
	_, err = pool.Apply(t.Context(), status.Spec)
	require.NoError(t, err)
	b.follow("leak")
	b.await("the rollout is under way", `document.querySelector(".rollout")?.innerText.includes("Rolling restart:")`)
	b.follow("Halt rolling restart…")
	b.tabTo("reason")
	b.press("it hangs")
	b.follow("Halt rolling restart")
	require.Contains(t, evaluate[string](b, `document.querySelector(".rollout").innerText`),
		"has halted: it hangs (by")
	b.follow("Fleet")

	status.Spec.Pool.Command, status.Spec.Recovery.MaxConsecutiveFailures = []string{"false"}, 1
	_, err = pool.Apply(t.Context(), status.Spec)
	require.NoError(t, err)
	b.await("the fleet says that the rollout has stopped, live",
		`document.querySelector("#pool-leak").innerText.includes("rolling restart halted: worker")`)
	b.fits()
	b.follow("pool leak")
	b.fits()
	require.Contains(t, evaluate[string](b, `document.querySelector(".rollout").innerText`),
		"has halted: worker leak/0 stays in service unchanged")
	b.wide(390) // where each row of a table is a card
	b.accessible(axe)
	b.follow("events")
	b.accessible(axe)
	b.fits()
}
