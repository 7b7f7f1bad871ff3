package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/shirou/gopsutil/v3/disk"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/api"
)

// heartbeatOf is the heartbeat of a host with n leased processes.
func heartbeatOf(n int) (h api.HostHeartbeat) {
	for i := range n {
		worker := fmt.Sprintf("functions/%06d", i)
		h.Processes = append(h.Processes, api.ProcessReport{
			Process: api.Process{Worker: worker, Incarnation: 12}, Usage: api.Usage{Requests: int64(i + 1)},
			Sample: &api.Sample{MemoryBytes: 1},
			Lease: &api.Lease{Worker: worker, Holder: strings.Repeat("h", api.MaxHolderBytes),
				Endpoint: strings.Repeat("e", 256)},
		})
	}
	return h
}

func TestAHeartbeatFitsIntoWhatTemporalTakes(t *testing.T) {
	require.Equal(t, heartbeatOf(fewProcesses), bounded(heartbeatOf(fewProcesses)))
	for _, n := range []int{fewProcesses, 1000, 5000, 50_000} {
		h := bounded(heartbeatOf(n))
		text, err := json.Marshal(h)
		require.NoError(t, err)
		require.Less(t, len(text), maxHeartbeat+1000)
		for i, p := range h.Processes {
			require.EqualValues(t, i+1, p.Usage.Requests, "in the order of their names")
		}
		if n <= 5000 {
			require.Len(t, h.Processes, n, "each has its usage")
			require.NotNil(t, h.Processes[0].Lease, "as much as fits is whole")
		}
	}
	broken := heartbeatOf(fewProcesses + 1)
	broken.Processes[fewProcesses].Sample.CPUPercent = math.NaN()
	_, err := json.Marshal(bounded(broken))
	require.NoError(t, err)
}

// Temporal fails the activity whose heartbeat is too large, so that the host would be suspect with each of them.
func TestTheHeartbeatOfAHostWithThousandsOfProcessesArrives(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), serverWait)
	defer cancel()
	server, dial := newTestServer(ctx, t)
	connection := dial()
	startHostWorkflows(t, connection)
	m := newTestMembership(t, connection, server.Namespace())
	m.lost = func() {} // a saturated machine may be silent for so long; a heartbeat that never arrives fails this test
	m.report = func() api.HostHeartbeat { return heartbeatOf(4000) }
	require.NoError(t, m.start(ctx))
	t.Cleanup(func() { m.leave(api.LeaveRequest{}) })
	require.Eventually(t, func() bool {
		h, err := m.client.HostHeartbeat(ctx, "h")
		return err == nil && len(h.Processes) == 4000
	}, serverWait, time.Second)
}

func TestADiskWithoutInodesHasNothingFree(t *testing.T) {
	require.EqualValues(t, 7, writableBytes(&disk.UsageStat{Free: 7, InodesTotal: 9, InodesFree: 1}, nil))
	require.Zero(t, writableBytes(&disk.UsageStat{Free: 7, InodesTotal: 9, InodesFree: 1}, unix.EROFS), "read-only")
	require.Zero(t, writableBytes(&disk.UsageStat{Free: 7, InodesTotal: 9}, nil))
	require.EqualValues(t, 7, writableBytes(&disk.UsageStat{Free: 7}, nil), "some file systems have no number of inodes")
}
