package devserver

import (
	"bytes"
	"sync"
)

const tailSize = 16 << 10

// tail keeps the last tailSize bytes written to it. It is safe for concurrent use.
type tail struct {
	mu  sync.Mutex
	end []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p...)
	if len(t.end) > 2*tailSize {
		t.end = bytes.Clone(t.end[len(t.end)-tailSize:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.end[max(0, len(t.end)-tailSize):])
}
