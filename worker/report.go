package worker

import "github.com/tempool/tempool/api"

// vitals is what each heartbeat tells.
func (a *Agent) vitals() api.HostVitals {
	vitals := a.host.Vitals()
	vitals.Agent = a.report.Load()
	return vitals
}
