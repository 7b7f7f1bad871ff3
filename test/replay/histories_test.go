package replay

import (
	"cmp"
	"compress/gzip"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// Flags of make replay-record.
var (
	chooseFrom = flag.String("choose-from", "",
		"folder of recorded histories, of which TestChoose keeps those that the replay needs")
	chooseInto = flag.String("choose-into", "", "folder for the chosen ones")
)

// recorded is the history of one run.
type recorded struct {
	name   string
	events *history.History
}

// histories are those of every version.
func histories(t *testing.T) (all []recorded) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*.json.gz"))
	require.NoError(t, err)
	require.Greater(t, len(files), 20, "the recorded histories are missing; make replay-record writes them")
	for _, path := range files {
		file, err := os.Open(path)
		require.NoError(t, err)
		defer file.Close()
		text, err := gzip.NewReader(file)
		require.NoError(t, err)
		content, err := io.ReadAll(text)
		require.NoError(t, err)
		all = append(all, decode(t, path, content))
	}
	return all
}

func decode(t *testing.T, path string, content []byte) recorded {
	t.Helper()
	one := recorded{filepath.Base(path), &history.History{}}
	require.NoError(t, protojson.Unmarshal(content, one.events), path)
	return one
}

// what is the type of an event, and the name of the message, timer or workflow that it is about.
func what(e *history.HistoryEvent) string {
	return strings.Join([]string{
		e.GetEventType().String(),
		e.GetWorkflowExecutionSignaledEventAttributes().GetSignalName(),
		e.GetWorkflowExecutionUpdateAcceptedEventAttributes().GetAcceptedRequest().GetInput().GetName(),
		e.GetActivityTaskScheduledEventAttributes().GetActivityType().GetName(),
		e.GetStartChildWorkflowExecutionInitiatedEventAttributes().GetWorkflowType().GetName(),
		e.GetSignalExternalWorkflowExecutionInitiatedEventAttributes().GetSignalName(),
		e.GetMarkerRecordedEventAttributes().GetMarkerName(),
	}, " ")
}

// steps are the pairs of successive events of a run, each with the type of the workflow.
func (r recorded) steps() map[string]bool {
	steps := map[string]bool{}
	workflow, before := "", "start"
	for _, e := range r.events.GetEvents() {
		if a := e.GetWorkflowExecutionStartedEventAttributes(); a != nil {
			workflow = a.GetWorkflowType().GetName()
		}
		now := what(e)
		steps[workflow+": "+before+" > "+now] = true
		before = now
	}
	return steps
}

// TestChoose keeps as few histories as have each step of all. It takes the one with the most steps that no other has
// yet, again and again.
func TestChoose(t *testing.T) {
	if *chooseFrom == "" {
		return // nothing is to be chosen
	}
	files, err := filepath.Glob(filepath.Join(*chooseFrom, "*.json"))
	require.NoError(t, err)
	left, contents := map[string]map[string]bool{}, map[string][]byte{}
	all := map[string]bool{}
	for _, path := range files {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		contents[path], left[path] = content, decode(t, path, content).steps()
		for step := range left[path] {
			all[step] = true
		}
	}
	covered, chosen := map[string]bool{}, 0
	for len(covered) < len(all) {
		slices.SortFunc(files, func(a, b string) int {
			return cmp.Or(cmp.Compare(len(left[b]), len(left[a])), cmp.Compare(len(contents[a]), len(contents[b])),
				cmp.Compare(a, b))
		})
		best := files[0]
		for step := range left[best] {
			covered[step] = true
		}
		for path := range left {
			for step := range covered {
				delete(left[path], step)
			}
		}
		chosen++
		write(t, filepath.Join(*chooseInto, filepath.Base(best)+".gz"), contents[best])
	}
	t.Logf("%d of %d histories have all %d steps", chosen, len(files), len(all))
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	file, err := os.Create(path)
	require.NoError(t, err)
	packed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	require.NoError(t, err)
	_, err = packed.Write(content)
	require.NoError(t, err)
	require.NoError(t, packed.Close())
	require.NoError(t, file.Close())
}

// TestEveryKindOfWorkflowIsRecorded: a history of each is there, with more than its start.
func TestEveryKindOfWorkflowIsRecorded(t *testing.T) {
	ended := map[string]bool{}
	for _, one := range histories(t) {
		events := one.events.GetEvents()
		if last := events[len(events)-1].GetEventType(); last != enums.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED {
			ended[events[0].GetWorkflowExecutionStartedEventAttributes().GetWorkflowType().GetName()] = true
		}
	}
	for _, name := range apiNames(t) {
		if workflow, found := strings.CutPrefix(name, "Workflow "); found {
			require.True(t, ended[workflow], "no history of %s", workflow)
		}
	}
}
