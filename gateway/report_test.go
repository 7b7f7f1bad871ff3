package gateway

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

func TestTheReportOfAPoolIsServedToThoseWhoMayReadIt(t *testing.T) {
	e := open(t, 2)
	answer := e.do("GET", "/v1/pools/p/report", nil)
	require.Equal(t, 200, answer.status)
	var report tempool.Report
	require.NoError(t, json.Unmarshal(answer.body, &report))
	require.Equal(t, "p", report.Pool)
	require.Len(t, report.Health, 2)
	require.NotNil(t, report.Health[0].UptimeS)
	e.do("GET", "/v1/pools/q/report", nil).requireProblem(t, 404, api.CodePoolNotFound)
}
