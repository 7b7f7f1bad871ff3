package pool

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/lifecycle"
)

func TestAWorkersLastReportIsNotUndoneByAnEarlierOneThatArrivesLater(t *testing.T) {
	inWorkflow(t, poolOf(1), func(p *pool) {
		p.ensure(0).RunID = "run"
		report := api.RosterEntry{RunID: "run", Incarnation: 1, State: lifecycle.Stopping}
		last := report
		last.State, last.Gone = lifecycle.Stopped, true
		p.workerChanged(last)
		p.workerChanged(report)
		require.True(t, p.slot(0).Gone)
		require.Equal(t, lifecycle.Stopped, p.slot(0).State)

		p.slot(0).RosterEntry = api.RosterEntry{RunID: "run"}
		report.ReportSeq, last.ReportSeq, last.Resting, last.Gone = 1, 2, true, false
		p.workerChanged(last)
		p.workerChanged(report)
		require.True(t, p.slot(0).Resting, "of the same incarnation")
		p.processesStarted(api.ProcessesStarted{Processes: []api.StartedProcess{
			{RunID: "run", Incarnation: 2, State: lifecycle.Starting}}})
		require.Equal(t, lifecycle.Starting, p.slot(0).State, "agents do not know the worker's number")
		report.Incarnation = 2
		p.workerChanged(report)
		require.Equal(t, lifecycle.Starting, p.slot(0).State, "the number outlasts their reports")
	})
}

func TestTheRosterCutsNoEndpoint(t *testing.T) {
	endpoint := "https://" + strings.Repeat("a", 253) + ":65535"
	require.Equal(t, endpoint, bounded(api.RosterEntry{Endpoint: endpoint}).Endpoint)
	require.Empty(t, bounded(api.RosterEntry{Endpoint: endpoint + "/gateway"}).Endpoint)
}
