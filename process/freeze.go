package process

import (
	"sync"

	"github.com/tempool/tempool/process/tree"
)

// freezer stops the tree of a process and continues it.
type freezer struct {
	mu         sync.Mutex // held while signals are sent
	generation int64      // of the newest Freeze or Thaw
	frozen     bool
	handed     bool // to the next supervisor, together with frozen: no signal is sent from here any more
}

// hand ends Freeze and Thaw here, and returns whether the tree is frozen.
func (f *freezer) hand() (frozen bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handed = true
	return f.frozen
}

// Freeze stops the whole tree with SIGSTOP until Thaw. Generations order the two: a Freeze or Thaw that is older than
// the newest one does nothing. It fails if a process does not stop, or if the process is ending; then the tree is
// continued.
func (p *Process) Freeze(generation int64) error {
	p = p.now()
	f := &p.freezer
	f.mu.Lock()
	defer f.mu.Unlock()
	if generation < f.generation {
		return nil
	}
	f.generation = generation
	switch {
	case f.handed:
		return coded(CodeUnavailable, nil, "freeze %s: it is being handed over to the next agent", p.key())
	case p.vacant():
		return nil
	case p.isEnding():
		return coded(CodeUnavailable, nil, "freeze %s: it is ending", p.key())
	}
	f.frozen = true
	if err := tree.Freeze(p.treeKey()); err != nil {
		p.thawLocked()
		return coded(CodeUnavailable, err, "freeze %s", p.key())
	}
	return nil
}

// Thaw continues a frozen tree, unless it is being handed over.
func (p *Process) Thaw(generation int64) {
	p = p.now()
	f := &p.freezer
	f.mu.Lock()
	defer f.mu.Unlock()
	if generation >= f.generation && !f.handed {
		f.generation = generation
		p.thawLocked()
	}
}

func (p *Process) thawLocked() {
	if !p.freezer.frozen {
		return
	}
	p.freezer.frozen = false
	if err := tree.Thaw(p.treeKey()); err != nil {
		p.logger.Error("cannot continue a frozen process tree", "error", err)
	}
}

// thawToStop lets a frozen tree handle SIGTERM.
func (p *Process) thawToStop() {
	p.freezer.mu.Lock()
	defer p.freezer.mu.Unlock()
	p.thawLocked()
}

// Frozen reports whether the tree is stopped by Freeze.
func (p *Process) Frozen() bool {
	p = p.now()
	p.freezer.mu.Lock()
	defer p.freezer.mu.Unlock()
	return p.freezer.frozen
}
