package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func exampleLease() *api.Lease {
	return &api.Lease{ID: "python.0.3.9", Worker: "python/0", Seq: 9, Incarnation: 3, Holder: "alice", Host: "h1",
		Endpoint: "http://h1:7070", GrantedAt: noon, ExpiresAt: noon.Add(time.Minute)}
}

func TestCheckoutPrintsTheLease(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python", lease: &tempool.Lease{Lease: *exampleLease()}})
	r := succeed(t, f, "checkout", "python", "--holder", "alice", "--ttl", "1m", "--session", "s1")
	require.Equal(t, lines(
		"Lease     python.0.3.9",
		"Worker    python/0",
		"Holder    alice",
		"Host      h1",
		"Endpoint  http://h1:7070",
		"Expires   2026-03-04T12:01:00Z (in 1m0s)",
		"Release   tempool checkin python.0.3.9",
	), r.out)
	require.Equal(t, tempool.CheckoutOptions{Holder: "alice", Session: "s1", TTL: time.Minute}, f.pools["python"].options)

	require.Equal(t, *exampleLease(),
		decode[api.Lease](t, ctl(t, f, "checkout", "python/0", "--holder", "alice", "-o", "json")))
	require.Equal(t, 0, *f.pools["python"].options.Slot)
}

func TestCheckoutWithoutAFreeWorkerSuggestsWait(t *testing.T) {
	f := newFakeControlPlane(&fakePool{name: "python",
		err: api.Errorf(api.CodeNoWorkers, "no worker of pool python is free")})
	r := fail(t, f, "checkout", "python", "--holder", "me", "-o", "json")
	require.Equal(t, "no_workers", failure(t, r).Code)
	require.Equal(t, "no worker of pool python is free; add --wait 30s to wait for a free worker", failure(t, r).Message)

	waited := fail(t, f, "checkout", "python", "--holder", "me", "--wait", "10ms", "-o", "json")
	require.Equal(t, "queue_timeout", failure(t, waited).Code)
	o := f.pools["python"].options
	require.True(t, o.NoRenew, "the lease is to outlive tempool")
	require.Equal(t, 10*time.Millisecond, o.Wait)
}

func TestCheckinReleasesTheLease(t *testing.T) {
	out := state(0, lifecycle.Busy, 3)
	out.Lease = exampleLease()
	f := newFakeControlPlane(&fakePool{name: "python",
		states: map[int][]api.WorkerState{0: {out}}})
	r := succeed(t, f, "checkin", "python.0.3.9", "--outcome", "error", "--error", "empty page", "-o", "json")
	require.Equal(t, []string{"checkin python.0.3.9 error empty page"}, f.requests)
	require.JSONEq(t, `{"lease": "python.0.3.9", "worker": "python/0", "state": "degraded"}`, r.out)
}

func TestCheckinOfAStaleLeaseIsFenced(t *testing.T) {
	other := state(0, lifecycle.Busy, 3)
	other.Lease = exampleLease()
	for says, s := range map[string]api.WorkerState{
		"does not exist, was released or has expired": state(0, lifecycle.Ready, 3),
		"is leased to alice as python.0.3.9":          other,
	} {
		f := newFakeControlPlane(&fakePool{name: "python", states: map[int][]api.WorkerState{0: {s}}})
		r := fail(t, f, "checkin", "python.0.3.8", "-o", "json")
		require.Equal(t, "lease_fenced", failure(t, r).Code)
		require.Contains(t, failure(t, r).Message, says)
		require.Empty(t, f.requests, "a stale lease is not sent: the worker would only count it")
	}
}
