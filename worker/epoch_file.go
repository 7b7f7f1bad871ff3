package worker

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tempool/tempool/internal/atomicfile"
)

// epochFile holds the newest epoch of the agents on a state folder. The host's workflow also knows it, unless it was ended from outside while no agent
// ran: a new one would count from 1 again, and could not distinguish the processes of earlier agents from those of this one.
const epochFile = "epoch"

// lastEpoch is the newest epoch of an agent on this state folder, 0 if none is known.
func (a *Agent) lastEpoch() int64 {
	content, err := os.ReadFile(filepath.Join(a.config.StateDir, epochFile))
	if err != nil {
		return 0
	}
	epoch, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil || epoch < 0 {
		a.log.Warn("cannot parse the previous agent's epoch", "file", epochFile, "content", strconv.Quote(string(content[:min(len(content), 64)])))
		return 0
	}
	return epoch
}

// rememberEpoch writes an epoch for the next agent on this state folder.
func (a *Agent) rememberEpoch(epoch int64) {
	if err := atomicfile.Write(filepath.Join(a.config.StateDir, epochFile), []byte(strconv.FormatInt(epoch, 10)+"\n"), 0o600); err != nil {
		a.log.Warn("cannot save the epoch; it is needed only if the host's workflow is ended from outside", "epoch", epoch, "error", err)
	}
}
