package replay

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// complete is for make replay-record: while a version is in the making, its new messages have no histories yet.
var complete = flag.Bool("complete", false,
	"fail if a signal, update, activity or workflow type is in no recorded history")

// TestEachMessageIsInARecordedHistory checks the names that api defines as Signal…, Update…, Activity… and Workflow….
func TestEachMessageIsInARecordedHistory(t *testing.T) {
	recorded := map[string]bool{}
	for _, one := range histories(t) {
		for _, event := range one.events.GetEvents() {
			recorded["Workflow "+event.GetWorkflowExecutionStartedEventAttributes().GetWorkflowType().GetName()] = true
			recorded["Signal "+event.GetWorkflowExecutionSignaledEventAttributes().GetSignalName()] = true
			update := event.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest()
			recorded["Update "+update.GetInput().GetName()] = true
			recorded["Activity "+event.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName()] = true
		}
	}
	names := apiNames(t)
	require.Greater(t, len(names), 50)
	missing := slices.DeleteFunc(names, func(name string) bool { return recorded[name] })
	t.Logf("in no recorded history: %v", missing)
	if *complete {
		require.Empty(t, missing, "add a test that sends each to make replay-record")
	}
}

// notInHistories are the names of messages that leave no event of their own.
var notInHistories = []string{
	"Activity PoolRoster", // a local activity
	"Activity Scale",      // a local activity
	// of users' workflows
	"Activity Checkout", "Activity HoldLease", "Activity Checkin",
}

// apiNames returns the kinds and names of all messages, as in "Signal drain".
func apiNames(t *testing.T) (names []string) {
	files, err := filepath.Glob("../../api/*.go")
	require.NoError(t, err)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, isValue := n.(*ast.ValueSpec)
			if !isValue || len(spec.Values) != 1 {
				return true
			}
			for _, kind := range []string{"Signal", "Update", "Activity", "Workflow"} {
				literal, isLiteral := spec.Values[0].(*ast.BasicLit)
				if !isLiteral || !strings.HasPrefix(spec.Names[0].Name, kind) {
					continue
				}
				value, err := strconv.Unquote(literal.Value)
				require.NoError(t, err)
				if name := kind + " " + value; !slices.Contains(notInHistories, name) {
					names = append(names, name)
				}
			}
			return true
		})
	}
	return names
}
