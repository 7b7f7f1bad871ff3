package activities

import (
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
)

// toMechanisms is the words of process in those of messages; nil for none.
func toMechanisms(by map[string]process.Means) map[string]string {
	if len(by) == 0 {
		return nil
	}
	words := make(map[string]string, len(by))
	for limit, m := range by {
		words[limit] = string(m)
	}
	return words
}

// toExit are what the state machine needs to know of an exit.
func toExit(e process.Exit) lifecycle.Exit {
	return lifecycle.Exit{Killed: e.Killed, Interrupted: e.Interrupted, Code: e.Code, Signal: e.Signal, Error: e.Error}
}

func toSample(s process.Sample) *api.Sample {
	if s.At.IsZero() {
		return nil
	}
	return &api.Sample{
		At: s.At, RSSBytes: s.RSSBytes, PSSBytes: s.PSSBytes, CPUPercent: s.CPUPercent, OpenFiles: s.OpenFiles,
		Threads: s.Threads, Children: s.Children, ReadBytes: s.ReadBytes, WriteBytes: s.WriteBytes,
	}
}
