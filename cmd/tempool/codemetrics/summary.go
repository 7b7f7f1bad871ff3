package codemetrics

import (
	"cmp"
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
}

// MeanComplexity returns the mean over all functions; 0 without functions.
func (s Summary) MeanComplexity() float64 {
	return float64(s.Complexity) / float64(max(1, s.Functions))
}

// FilesPerSecond returns 0 if no time has passed.
func (s Summary) FilesPerSecond() float64 {
	if s.Took <= 0 {
		return 0
	}
	return float64(s.Files) / s.Took.Seconds()
}

func (s *Summary) add(measures []FileMeasure) {
	s.Calls++
	for _, m := range measures {
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
	slices.SortFunc(s.Worst, func(a, b Function) int {
		return cmp.Or(cmp.Compare(b.Complexity, a.Complexity), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	s.Worst = slices.Clip(s.Worst[:min(topFunctions, len(s.Worst))])
}
