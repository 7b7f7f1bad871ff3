package e2e

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// coreTests are the tests that -short leaves, and so make test: one for each promise that everything else rests on.
var coreTests = []string{
	"TestACodeMetricsJobCountsEachFileOnceDespiteCrashes",
	"TestEventsReportWhatHappensToAWorker",
	"TestAKilledAgentLeavesNoProcessAndTheNextAgentRestoresThePool",
	"TestStoppingAnAgentMovesItsWorkersAndLeavesNoProcess",
	"TestPoolsServeWhileTemporalIsDown",
	"TestCallsSpreadOverTwoAgentsAndSurviveTheDeathOfOne",
	"TestTheLifeOfALease",
	"TestReplacingAllWorkersUnderLoadFailsNoCall",
	"TestContinueAsNewOfAPoolDoesNotDisturbItsWorkers",
	"TestASessionSurvivesWorkerAndAgentCrashes",
	"TestHostsShareSessionsInRedis",
	"TestExecuteCallsAPool",
	"TestCtlRunsAPoolFromStartToStop",
	"TestTheCoreTestsExist",
}

// selectCore leaves only the core, if -short is given without -run.
func selectCore() error {
	flag.Parse()
	if !testing.Short() || flag.Lookup("test.run").Value.String() != "" {
		return nil
	}
	return flag.Set("test.run", "^("+strings.Join(coreTests, "|")+")$")
}

func TestTheCoreTestsExist(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	missing := slices.Clone(coreTests)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is {
				missing = slices.DeleteFunc(missing, func(test string) bool { return test == f.Name.Name })
			}
		}
	}
	require.Empty(t, missing)
}
