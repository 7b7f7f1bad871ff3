package e2e

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/history/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tempool/tempool/api"
)

// record is the folder to which every test writes the histories of all its workflow runs, for test/replay; empty
// disables this.
var record = flag.String("record", "", "folder for the histories of all workflow runs")

// recordedHome is the working folder of workers while histories are recorded. It keeps paths of this machine out of
// them.
const recordedHome = "/tmp/tempool-recorded"

var copying sync.Mutex

// recordedCopy copies a folder to recordedHome, unless it is there, and returns the path of the copy.
func recordedCopy(from, name string) string {
	copying.Lock() // so that no test sees half of it
	defer copying.Unlock()
	to := filepath.Join(recordedHome, name)
	if err := os.CopyFS(to, os.DirFS(from)); err != nil && !errors.Is(err, fs.ErrExist) {
		panic(err)
	}
	return to
}

// namesThisMachine reports whether a history has the path of a user's folder or of this checkout.
func namesThisMachine(history []byte) bool {
	home, _ := os.UserHomeDir()
	checkout, _ := filepath.Abs("../..")
	return bytes.Contains(history, []byte(home+"/")) || bytes.Contains(history, []byte(checkout+"/"))
}

// recordHistories writes the histories of all workflow runs of the environment.
func (env *testEnv) recordHistories() {
	t := env.t
	if *record == "" || env.sealed {
		return
	}
	require.NoError(t, os.MkdirAll(*record, 0o755))
	for _, execution := range env.executions(context.Background(), "") {
		id, run := execution.GetExecution().GetWorkflowId(), execution.GetExecution().GetRunId()
		subject, ours := strings.CutPrefix(id, "tempool/")
		if !ours { // users choose the IDs of Execute and Scale
			subject = strings.ToLower(execution.GetType().GetName())
			// a user's workflow
			if subject != strings.ToLower(api.WorkflowExecute) && subject != strings.ToLower(api.WorkflowScale) {
				continue
			}
		}
		events, err := env.readHistory(context.Background(), id, run)
		require.NoError(t, err)
		if len(events) < 3 { // terminated before its first workflow task: there is nothing to replay
			continue
		}
		content, err := protojson.Marshal(&history.History{Events: events})
		require.NoError(t, err)
		if plain, err := proto.Marshal(&history.History{Events: events}); err != nil || namesThisMachine(plain) {
			continue
		}
		name := strings.TrimLeft(strings.ReplaceAll(subject, "/", "-"), "-") + "." + run[len(run)-8:] + ".json"
		require.NoError(t, os.WriteFile(filepath.Join(*record, name), content, 0o600))
	}
}
