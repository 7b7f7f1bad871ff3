package process

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// freshEnough is how old a look at the process table may be for a sample. It lets the samples of many workers that are asked for
// at about the same time share one.
const freshEnough = time.Second

// leastCPUSpan is the least time over which a use of CPU is told. A tick of 10 ms more or less is then 5 % of a core.
const leastCPUSpan = 200 * time.Millisecond

// Sample is what a whole tree used at one moment.
type Sample struct {
	At       time.Time `json:"at"`
	RSSBytes int64     `json:"rss_bytes"`
	// PSSBytes counts shared pages in part, so that sums over workers are true. 0 where it cannot be read.
	PSSBytes int64 `json:"pss_bytes,omitempty"`
	// CPUPercent is over the time since the sample before that measured it, or since the program began to run; 100 is one core. A sample
	// sooner after that than a fifth of a second repeats it, 0 at first: the clocks of the process table are too coarse for less.
	CPUPercent float64 `json:"cpu_percent"`
	OpenFiles  int     `json:"open_files"`
	Threads    int     `json:"threads"`
	Children   int     `json:"children"` // processes besides the first
	// ReadBytes and WriteBytes went to and from storage since the start, as far as the system tells.
	ReadBytes  int64 `json:"read_bytes"`
	WriteBytes int64 `json:"write_bytes"`
}

// usage is what one process alone tells about itself. Where the process table has told already, 0 means to use that.
type usage struct {
	rss, pss    int64
	threads     int
	cpu         time.Duration
	openFiles   int
	read, wrote int64
}

// meter turns looks at the table into samples; its owner is one Process.
type meter struct {
	mu     sync.Mutex
	latest Sample
	cpu    time.Duration // of the tree at cpuAt
	cpuAt  time.Time     // when CPUPercent was measured last, and at first when the program began to run
	io     map[identity]usage
	ended  usage // read and wrote of members that are gone
}

// snapshots shares one look at the process table among all who want one at about the same time.
type snapshots struct {
	mu   sync.Mutex
	last *table
}

func (s *snapshots) recent(maxAge time.Duration) (*table, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && time.Since(s.last.at) < maxAge {
		return s.last, nil
	}
	t, err := scan(onlyRead)
	if err != nil {
		return nil, err
	}
	s.last = t
	return t, nil
}

// Sample measures the tree; it may return a sample up to a second old. It fails when the process has ended.
func (p *Process) Sample(ctx context.Context) (Sample, error) {
	return p.sampleWithin(ctx, freshEnough)
}

// FreshSample is Sample that is never older than its call.
func (p *Process) FreshSample(ctx context.Context) (Sample, error) { return p.sampleWithin(ctx, 0) }

func (p *Process) sampleWithin(ctx context.Context, maxAge time.Duration) (Sample, error) {
	if err := ctx.Err(); err != nil {
		return Sample{}, err
	}
	t, err := p.supervisor.snapshots.recent(min(maxAge, time.Since(p.startedAt))) // an older look would not show the process
	if err != nil {
		return Sample{}, err
	}
	return p.sampleFrom(t)
}

// LatestSample is the newest sample, asked for or not; its At is zero if there is none yet.
func (p *Process) LatestSample() Sample {
	p.meter.mu.Lock()
	defer p.meter.mu.Unlock()
	return p.meter.latest
}

var errNothingToSample = errors.New("the process has ended")

func (p *Process) sampleFrom(t *table) (Sample, error) {
	p.meter.mu.Lock()
	defer p.meter.mu.Unlock()
	if !t.at.After(p.meter.latest.At) {
		return p.meter.latest, nil
	}
	key := p.treeKey()
	select {
	case <-p.exited:
	default:
		key.pinned = true
	}
	members := t.members(key)
	if len(members) == 0 {
		return Sample{}, errNothingToSample
	}
	return p.meter.measure(t.at, members, usageOf), nil
}

// measure makes the next sample from the living members of the tree.
func (m *meter) measure(at time.Time, members []*row, usageOf func(identity) usage) Sample {
	sample := Sample{At: at, Children: len(members) - 1, CPUPercent: m.latest.CPUPercent}
	var cpu time.Duration
	complete := true
	io := make(map[identity]usage, len(members))
	for _, member := range members {
		used := usageOf(member.identity)
		used.rss = cmp.Or(used.rss, member.rss)
		complete = complete && used.pss > 0
		sample.RSSBytes += used.rss
		sample.PSSBytes += used.pss
		sample.OpenFiles += used.openFiles
		sample.Threads += cmp.Or(used.threads, member.threads)
		cpu += cmp.Or(used.cpu, member.cpu)
		before := m.io[member.identity]
		used.read, used.wrote = max(used.read, before.read), max(used.wrote, before.wrote)
		io[member.identity] = used
	}
	if !complete {
		sample.PSSBytes = 0 // a part would look like the whole
	}
	for id, before := range m.io {
		if _, lives := io[id]; !lives {
			m.ended.read += before.read
			m.ended.wrote += before.wrote
		}
	}
	sample.ReadBytes, sample.WriteBytes = m.ended.read, m.ended.wrote
	for _, used := range io {
		sample.ReadBytes += used.read
		sample.WriteBytes += used.wrote
	}
	// A member that ended unwaited-for takes its CPU time with it, so the sum may fall.
	if span := at.Sub(m.cpuAt); span >= leastCPUSpan {
		sample.CPUPercent = 100 * float64(max(0, cpu-m.cpu)) / float64(span)
		m.cpu, m.cpuAt = cpu, at
	}
	m.latest, m.io = sample, io
	return sample
}

// sampleAll samples every process in the rhythm of the configuration, until ctx ends.
func (s *Supervisor) sampleAll(ctx context.Context) {
	ticker := time.NewTicker(s.config.SampleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		processes := s.List()
		if len(processes) == 0 {
			continue
		}
		t, err := s.snapshots.recent(freshEnough)
		if err != nil {
			s.logger.Error("processes cannot be sampled", "error", err)
			continue
		}
		for _, p := range processes {
			if ctx.Err() != nil {
				return
			}
			_, _ = p.sampleFrom(t) // it fails only for a process that is ending
		}
	}
}
