package pool

import (
	"cmp"
	"slices"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

// The workers of a pool have the numbers from 0 to size-1, until it is scaled down: then the workers go that are missed
// least, and their numbers are vacant until it is scaled up again.

// members scales the pool.
type members struct {
	*pool
	asking bool // for the leases on the workers
}

// isMember reports whether a number has a worker that is to stay.
func (p *pool) isMember(number int) bool {
	_, member := slices.BinarySearch(p.Members, number)
	return member
}

// excess is by how many workers the pool is larger than its size.
func (p *pool) excess() int { return len(p.Members) - p.Size }

// resize sets the size.
func (m *members) resize(size int, reason string) {
	m.emitScaled(m.Size, size, reason)
	m.Size = size
	m.fill()
}

// fill gives new workers the lowest vacant numbers. shrink chooses the workers that go.
func (m *members) fill() {
	for number := 0; m.excess() < 0; number++ {
		if at, member := slices.BinarySearch(m.Members, number); !member {
			m.Members = slices.Insert(m.Members, at, number)
		}
	}
}

// shrink chooses the workers that go: those out of service, then those without a lease, then those that a client has
// leased, each time the highest numbers first. Leases are asked for only if workers in service have to go.
func (m *members) shrink() {
	excess := m.excess()
	if excess <= 0 || m.Stopping || m.asking {
		return
	}
	serving, down := m.byService()
	if excess <= len(down) {
		slices.SortFunc(down, m.compareDown)
		m.vacate(down[:excess])
		return
	}
	m.vacate(down)
	m.askLeases(serving)
}

// byService are the workers that serve, and those that do not.
func (m *members) byService() (serving, down []int) {
	for _, number := range m.Members {
		if s := m.slot(number); s != nil && s.isServing() {
			serving = append(serving, number)
		} else {
			down = append(down, number)
		}
	}
	return serving, down
}

// compareDown orders workers that are out of service: those that go first come first.
func (m *members) compareDown(a, b int) int {
	return cmp.Or(cmp.Compare(m.rankDown(a), m.rankDown(b)), cmp.Compare(b, a))
}

// rankDown ranks workers that are out of service: those come first whose end costs least.
func (m *members) rankDown(number int) int {
	s := m.slot(number)
	switch {
	case s == nil, s.Gone, s.Resting:
		return 0
	case s.State == lifecycle.Suspended, s.State == lifecycle.Draining:
		return 2
	}
	return 1
}

// leasesTimeout bounds the question after the leases on workers.
const leasesTimeout = 10 * time.Second

// askLeases removes the workers in service that have the least important leases, once the leases are known. If they
// cannot be read, it removes those with the highest numbers.
func (m *members) askLeases(serving []int) {
	m.asking = true
	future := m.ask(api.ActivityReserveWorker, "leases on the workers of pool "+m.name(), leasesTimeout,
		api.ReserveWorkerRequest{Pool: m.name(), Slots: serving})
	m.OnFuture(future, func(f workflow.Future) {
		m.asking = false
		var known api.ReserveWorkerResult
		if err := f.Get(m.Ctx, &known); err != nil {
			workflow.GetLogger(m.Ctx).Warn("cannot read the leases of workers; stopping those with the highest numbers",
				"pool", m.name(), "error", err)
			slices.Reverse(serving)
			known.Order = serving
		}
		order := slices.DeleteFunc(known.Order, func(number int) bool { return !m.isMember(number) })
		m.vacate(order[:max(0, min(m.excess(), len(order)))])
	})
}

// vacate lets workers go.
func (m *members) vacate(numbers []int) {
	if len(numbers) == 0 {
		return
	}
	workflow.GetLogger(m.Ctx).Info("scaling down", "pool", m.name(), "size", m.Size, "workers", numbers)
	m.Members = slices.DeleteFunc(m.Members, func(number int) bool { return slices.Contains(numbers, number) })
}
