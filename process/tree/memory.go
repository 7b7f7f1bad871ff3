package tree

import (
	"math"
	"sync"
	"time"

	"github.com/tempool/tempool/api"
)

// Values of api.Sample.MemorySource.
const (
	// FromPSS is the sum of the members' proportional set sizes: pages that they share count once.
	FromPSS = "pss"
	// Estimated is the newest sum of PSS, plus by how much RSS has grown since.
	Estimated = "estimate"
	// FromRSS is the sum of resident set sizes: the agent cannot read the PSS of a member. It counts shared pages once for
	// each member.
	FromRSS = "rss"
)

const (
	// pssShare of one core is the time that an agent may spend reading PSS. The kernel walks the page tables of a process
	// for it, which takes milliseconds for a large one.
	pssShare = 0.01
	// pssBurst bounds the time that an agent saves up for reading PSS.
	pssBurst = 250 * time.Millisecond
	// pssMaxAge is the age at which PSS is read again, even if RSS has not changed: other trees may have mapped or
	// unmapped shared pages.
	pssMaxAge = time.Minute
	// pssChange is the relative change of RSS at which PSS is read again.
	pssChange = 0.05
)

// PSSBudget bounds the time that an agent spends reading PSS to one percent of a core. Its zero value is ready to use.
type PSSBudget struct {
	mu      sync.Mutex
	balance time.Duration // negative while overspent
	at      time.Time     // of balance
}

// available reports whether PSS may be read now.
func (b *PSSBudget) available(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at.IsZero() {
		b.balance, b.at = pssBurst, now
	}
	if elapsed := now.Sub(b.at); elapsed > 0 {
		b.balance, b.at = min(pssBurst, b.balance+time.Duration(pssShare*float64(elapsed))), now
	}
	return b.balance > 0
}

func (b *PSSBudget) spend(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.balance -= d
}

// pssReading is the newest sum of PSS of a tree.
type pssReading struct {
	at       time.Time
	bytes    int64
	rss      int64 // at the same time
	readable bool
}

// isDue reports whether PSS should be read again.
func (r pssReading) isDue(at time.Time, rss int64) bool {
	return at.Sub(r.at) >= pssMaxAge || math.Abs(float64(rss-r.rss)) > pssChange*float64(r.rss)
}

// addMemoryLocked sets the memory of a sample. It reads PSS the first time, and later if that is due and the budget
// allows; without a budget, always.
func (m *Meter) addMemoryLocked(sample *api.Sample, members []*Entry, budget *PSSBudget,
	pssOf func(Identity) (int64, bool)) {
	first := m.pss.at.IsZero() // which costs little beside the start of the tree
	if budget == nil || first || m.pss.isDue(sample.At, sample.RSSBytes) && budget.available(time.Now()) {
		began := time.Now()
		m.pss = pssReading{at: sample.At, rss: sample.RSSBytes, readable: true}
		for _, member := range members {
			bytes, readable := pssOf(member.Identity)
			m.pss.bytes += bytes
			m.pss.readable = m.pss.readable && readable
		}
		if budget != nil && !first {
			budget.spend(time.Since(began))
		}
	}
	switch {
	case !m.pss.readable:
		sample.MemoryBytes, sample.MemorySource = sample.RSSBytes, FromRSS
	case m.pss.at.Equal(sample.At):
		sample.PSSBytes, sample.MemoryBytes, sample.MemorySource = m.pss.bytes, m.pss.bytes, FromPSS
	default:
		sample.MemoryBytes, sample.MemorySource = max(0, m.pss.bytes+sample.RSSBytes-m.pss.rss), Estimated
	}
}

// PSSAt returns when PSS was last read; zero before.
func (m *Meter) PSSAt() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pss.at
}
