package host

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

var (
	t0          = time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	usage       = []api.ProcessUsage{{Process: kept[0], Usage: api.Usage{Requests: 7}}}
	leavingKept = api.LeaveRequest{Epoch: 3, Kept: kept, KeepMS: 120_000, Usage: usage}
)

// member is a host whose epoch 3 is held by instance "a" on the state folder "disk".
func member(state api.HostState) membership {
	return membership{
		HostStatus: api.HostStatus{Host: "gpu-1", Epoch: 3, JoinedAt: t0, Instance: "a", State: state, Since: t0,
			Machine: "m"},
		StateID: "disk",
	}
}

func TestJoin(t *testing.T) {
	for name, c := range map[string]struct {
		held    membership
		request api.JoinRequest
		epoch   int64
		refusal api.Code
	}{
		"a new host": {membership{}, api.JoinRequest{Instance: "a", StateID: "disk"}, 1, ""},
		"a new host whose agent had an epoch": {membership{}, api.JoinRequest{Instance: "a", StateID: "disk", Epoch: 7},
			7, ""},
		"a new host whose folder had an epoch": {membership{}, api.JoinRequest{Instance: "b", StateID: "disk", Last: 7},
			8, ""},
		"an epoch that the folder does not know": {member(api.HostLeft),
			api.JoinRequest{Instance: "b", StateID: "disk", Last: 2}, 4, ""},
		"a repeated join keeps its epoch": {member(api.HostUp),
			api.JoinRequest{Instance: "a", StateID: "disk", Epoch: 3}, 3, ""},
		"a suspect agent that joins again": {member(api.HostSuspect),
			api.JoinRequest{Instance: "a", StateID: "disk", Epoch: 3}, 3, ""},
		"a lost agent gets the next epoch": {member(api.HostLost),
			api.JoinRequest{Instance: "a", StateID: "disk", Epoch: 3}, 4, ""},
		"a successor in the same folder": {member(api.HostUp), api.JoinRequest{Instance: "b", StateID: "disk"}, 4,
			""},
		"an agent of another folder while one is up": {member(api.HostUp),
			api.JoinRequest{Instance: "b", StateID: "other"}, 3,
			api.CodeHostTaken},
		"an agent of another folder while it may live": {member(api.HostSuspect),
			api.JoinRequest{Instance: "b", StateID: "other"}, 3, api.CodeHostTaken},
		"an agent of another folder after a loss": {member(api.HostLost), api.JoinRequest{Instance: "b", StateID: "other"},
			4, ""},
		"an agent of another folder after an end": {member(api.HostLeft), api.JoinRequest{Instance: "b", StateID: "other"},
			4, ""},
		"an instance that was succeeded": {member(api.HostUp),
			api.JoinRequest{Instance: "old", StateID: "disk", Epoch: 2}, 3, api.CodeHostTaken},
		"no instance": {membership{}, api.JoinRequest{StateID: "disk"}, 0, api.CodeInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			next, refusal := c.held.join(c.request, t0.Add(time.Minute))
			require.Equal(t, c.epoch, next.Epoch)
			if c.refusal != "" {
				require.NotNil(t, refusal)
				require.Equal(t, c.refusal, refusal.Code)
				if c.refusal == api.CodeHostTaken {
					require.Contains(t, refusal.Message, "held by agent "+c.held.Instance)
				}
				require.Equal(t, c.held, next)
				return
			}
			require.Nil(t, refusal)
			require.Equal(t, api.HostUp, next.State)
			require.Equal(t, c.request.Instance, next.Instance)
		})
	}
}

func TestARefusedJoinNamesTheAgentThatHoldsTheID(t *testing.T) {
	_, refusal := member(api.HostUp).join(api.JoinRequest{Instance: "b", StateID: "other"}, t0)
	require.EqualError(t, refusal,
		`host_taken: host id "gpu-1" is held by agent a (m) since 2026-11-22T05:00:00Z, epoch 3`)
	require.Equal(t, api.HostHeartbeatTimeout+api.HostGrace, refusal.RetryAfter)
}

func TestLeaveEndsThePresentEpochAlone(t *testing.T) {
	require.Equal(t, api.HostUp, member(api.HostUp).leave(api.LeaveRequest{Epoch: 2}, t0).State)
	left := member(api.HostUp).leave(api.LeaveRequest{Epoch: 3}, t0.Add(time.Hour))
	require.Equal(t, api.HostLeft, left.State)
	require.Equal(t, t0.Add(time.Hour), left.Since)
	require.Equal(t, api.HostLost, member(api.HostLost).leave(api.LeaveRequest{Epoch: 3}, t0).State)
}

func TestAnAgentCutOffFromTemporalHasLongerToJoinAgain(t *testing.T) {
	last := api.HostHeartbeat{At: t0,
		Processes: []api.ProcessReport{{Process: api.Process{Worker: "p/1", Incarnation: 2}, Usage: api.Usage{Requests: 7}}}}
	silent, unheard := member(api.HostUp), member(api.HostUp)
	now := t0.Add(api.HostHeartbeatTimeout + api.HostHeartbeatInterval)
	silent.suspect(last, now)
	require.Equal(t, api.HostSuspect, silent.State)
	require.Equal(t, now.Add(api.HostGrace), silent.SuspectUntil)
	now = t0.Add(time.Minute)
	unheard.suspect(last, now)
	require.Equal(t, now.Add(api.HostOutageGrace), unheard.SuspectUntil)

	silent.lose(now)
	require.Equal(t, api.HostLost, silent.State)
	require.Equal(t, &api.EndEpochRequest{
		Host: "gpu-1", Epoch: 3, Reason: "host gpu-1 lost: its agent was silent for 16s",
		Usage: []api.ProcessUsage{{Process: last.Processes[0].Process, Usage: last.Processes[0].Usage}},
	}, silent.Ended)

	replaced, refusal := unheard.join(api.JoinRequest{Instance: "b", StateID: "disk"}, now)
	require.Nil(t, refusal)
	require.Equal(t, silent.Ended.Usage, replaced.Ended.Usage)
	require.Nil(t, replaced.Last)

	again, refusal := unheard.join(api.JoinRequest{Instance: "a", StateID: "disk", Epoch: 3}, now)
	require.Nil(t, refusal)
	require.Equal(t, api.HostUp, again.State)
	require.EqualValues(t, 3, again.Epoch)
	require.Nil(t, again.Ended, "it has lost nothing")
	require.Nil(t, again.Last)
}

func TestEveryEndOfAnEpochIsReported(t *testing.T) {
	successor, refusal := member(api.HostUp).join(api.JoinRequest{Instance: "b", StateID: "disk", Usage: usage}, t0)
	require.Nil(t, refusal)
	require.Equal(t, &api.EndEpochRequest{Host: "gpu-1", Epoch: 3, Reason: "the agent of host gpu-1 was started again",
		Usage: usage}, successor.Ended)
	require.Equal(t, &api.EndEpochRequest{Host: "gpu-1", Epoch: 3, Reason: "the agent of host gpu-1 has stopped"},
		member(api.HostUp).leave(api.LeaveRequest{Epoch: 3}, t0).Ended)
}

func TestAWorkflowThatWasStartedAgainEndsTheEpochsThatItDoesNotKnow(t *testing.T) {
	next, refusal := membership{HostStatus: api.HostStatus{Host: "gpu-1"}}.join(api.JoinRequest{Instance: "b",
		StateID: "disk", Last: 7, Kept: kept}, t0)
	require.Nil(t, refusal)
	require.Equal(t, &api.EndEpochRequest{
		Host: "gpu-1", Epoch: 7, Reason: "the agent of host gpu-1 was started again", Kept: kept,
		NextAgent: &api.NextAgent{Epoch: 8},
	}, next.Ended)
}

// The workers whose processes were not kept have been notified, which ends that request.
func TestTheUsageOfKeptProcessesOutlivesTheFirstNotification(t *testing.T) {
	left := member(api.HostUp).leave(leavingKept, t0)
	left.Ended = nil

	next, refusal := left.join(api.JoinRequest{Instance: "b", StateID: "disk"}, t0)
	require.Nil(t, refusal)
	require.Equal(t, usage, next.Ended.Usage, "the next agent has not taken them over")
	left.giveUp(t0)
	require.Equal(t, usage, left.Ended.Usage)
	require.Equal(t, api.HostLeft, left.State)
}

func TestAnEpochWhoseProcessesAreKeptWaitsForTheNextAgent(t *testing.T) {
	left := member(api.HostUp).leave(leavingKept, t0)
	require.Equal(t, api.HostKeeping, left.State)
	require.Equal(t, t0.Add(2*time.Minute), left.SuspectUntil)
	require.Equal(t, &api.EndEpochRequest{Host: "gpu-1", Epoch: 3, Reason: "the agent of host gpu-1 has stopped",
		Kept: kept, Usage: usage}, left.Ended)

	_, refusal := left.join(api.JoinRequest{Instance: "b", StateID: "other"}, t0)
	require.Equal(t, api.CodeHostTaken, refusal.Code, "the processes are in another folder")

	next, refusal := left.join(api.JoinRequest{Instance: "b", StateID: "disk", Kept: kept, Endpoint: "unix:/g"}, t0)
	require.Nil(t, refusal)
	require.Equal(t, api.HostUp, next.State)
	require.Equal(t, &api.EndEpochRequest{
		Host: "gpu-1", Epoch: 3, Reason: "the agent of host gpu-1 was started again", Usage: usage, Kept: kept,
		NextAgent: &api.NextAgent{Epoch: 4, Endpoint: "unix:/g"},
	}, next.Ended)

	next, _ = left.join(api.JoinRequest{Instance: "b", StateID: "disk"}, t0)
	require.Empty(t, next.Ended.Kept, "an agent that took nothing over")

	left.giveUp(t0)
	require.Equal(t, api.HostLeft, left.State)
	require.Empty(t, left.Ended.Kept, "all workers are notified")
}
