package activities

import (
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
	"github.com/tempool/tempool/process"
)

func toMechanisms(byLimit map[string]process.Mechanism) map[string]string {
	if len(byLimit) == 0 {
		return nil
	}
	names := make(map[string]string, len(byLimit))
	for limit, mechanism := range byLimit {
		names[limit] = string(mechanism)
	}
	return names
}

func toExit(e process.Exit) lifecycle.Exit {
	return lifecycle.Exit{Killed: e.Killed, CutCall: e.CutCall, ByAgent: e.ByAgent, Interrupted: e.Interrupted, Code: e.Code, Signal: e.Signal, Error: e.Error}
}

// Outcome is how a process has ended.
func Outcome(e process.Exit) lifecycle.State { return lifecycle.Outcome(toExit(e), false) }

// toSample returns nil for the zero Sample.
func toSample(s process.Sample) *api.Sample {
	if s.At.IsZero() {
		return nil
	}
	sample := &api.Sample{
		At: s.At, MemoryBytes: s.MemoryBytes, MemorySource: string(s.MemorySource), RSSBytes: s.RSSBytes, PSSBytes: s.PSSBytes,
		CPUPercent: s.CPUPercent, OpenFiles: s.OpenFiles,
		Threads: s.Threads, Children: s.Children, ReadBytes: s.ReadBytes, WriteBytes: s.WriteBytes,
	}
	if n := s.Network; n != nil {
		sample.Network = &api.NetworkBytes{ReceivedBytes: n.Received, SentBytes: n.Sent}
	}
	return sample
}
