package codemetrics

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Function is one function and its cyclomatic complexity.
type Function struct {
	Path       string `json:"path,omitempty"`
	Name       string `json:"name"` // with the classes and functions around it, as in Outer.method
	Line       int    `json:"line"`
	Complexity int    `json:"complexity"`
}

// FileMeasure is a worker's answer about one file; examples/codemetrics/complexity.py defines the measures.
type FileMeasure struct {
	Path       string     `json:"path"`
	Bytes      int64      `json:"bytes"`
	Lines      int64      `json:"lines"`
	Functions  int64      `json:"functions"`
	Classes    int64      `json:"classes"`
	Complexity int64      `json:"complexity"`
	Worst      []Function `json:"worst"`
	// Problem is why the file cannot be read or parsed; nil if it can.
	Problem *string `json:"problem"`
}

// Summary is the sum over all files.
type Summary struct {
	Files      int
	Bytes      int64
	Lines      int64
	Functions  int64
	Classes    int64
	Complexity int64 // over all functions
	Worst      []Function
	Problems   int // files that cannot be read or parsed; they count in Files, Bytes and Lines
	Took       time.Duration
	// Calls counts the calls that succeeded, Retried those that failed and whose files were sent again.
	Calls   int
	Retried int
	// Leases counts all leases, not only those held at the same time.
	Leases int
}

// MeanComplexity returns the mean over all functions; 0 without functions.
func (s Summary) MeanComplexity() float64 {
	if s.Functions == 0 {
		return 0
	}
	return float64(s.Complexity) / float64(s.Functions)
}

// FilesPerSecond returns 0 if no time has passed.
func (s Summary) FilesPerSecond() float64 {
	if s.Took <= 0 {
		return 0
	}
	return float64(s.Files) / s.Took.Seconds()
}

// totals adds measures up and rejects a file that was counted before.
type totals struct {
	summary Summary
	counted map[string]bool
}

func newTotals() *totals { return &totals{counted: map[string]bool{}} }

// add counts the answer to one batch, or nothing of it if the answer does not have each file of the batch once, in order.
func (t *totals) add(b batch, measures []FileMeasure) error {
	if len(measures) != len(b.paths) {
		return fmt.Errorf("the batch has %d files and the worker's answer has %d", len(b.paths), len(measures))
	}
	for i, m := range measures {
		if m.Path != b.paths[i] {
			return fmt.Errorf("the batch has %s where the worker's answer has %q", b.paths[i], m.Path)
		}
		if t.counted[m.Path] {
			return fmt.Errorf("%s is already counted", m.Path)
		}
	}
	s := &t.summary
	for _, m := range measures {
		t.counted[m.Path] = true
		s.Files++
		s.Bytes += m.Bytes
		s.Lines += m.Lines
		s.Functions += m.Functions
		s.Classes += m.Classes
		s.Complexity += m.Complexity
		if m.Problem != nil {
			s.Problems++
		}
		for _, f := range m.Worst {
			f.Path = m.Path
			s.Worst = append(s.Worst, f)
		}
	}
	s.Calls++
	slices.SortFunc(s.Worst, func(a, b Function) int {
		return cmp.Or(cmp.Compare(b.Complexity, a.Complexity), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	s.Worst = s.Worst[:min(topFunctions, len(s.Worst))]
	return nil
}

// total returns the sum so far.
func (t *totals) total() Summary {
	s := t.summary
	s.Worst = slices.Clone(s.Worst)
	return s
}
