package process

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/tree"
)

// frozenTree starts a shell with a child in its group and one in a session of its own, and freezes them.
func frozenTree(t *testing.T, script string) (p *Process, ids []tree.Identity) {
	t.Helper()
	dir := t.TempDir()
	near, far := filepath.Join(dir, "near"), filepath.Join(dir, "far")
	p = begin(t, open(t), sh(`sh -c 'echo $$ > `+near+`; while :; do sleep 0.01; done' & setsid sh -c 'echo $$ > `+far+
		`; while :; do sleep 0.01; done' & `+script))
	ids = []tree.Identity{p.root, pidIn(t, near), pidIn(t, far)}
	require.NoError(t, p.Freeze(1))
	return p, ids
}

func stopped(t *testing.T, id tree.Identity) bool {
	t.Helper()
	e, err := tree.ReadEntry(id.PID)
	require.NoError(t, err)
	return e != nil && e.Stopped
}

func TestFreezeStopsTheWholeTreeAndThawContinuesIt(t *testing.T) {
	p, ids := frozenTree(t, "wait")
	require.True(t, p.Frozen())
	table, err := tree.ScanTable(nil)
	require.NoError(t, err)
	members := table.Members(p.treeKey())
	require.GreaterOrEqual(t, len(members), len(ids))
	for _, e := range members {
		require.True(t, e.Stopped || e.Blocked, "process %d runs", e.PID)
	}
	require.ErrorIs(t, p.Probe(t.Context()), ErrBusy, "a frozen process is not probed")
	p.Thaw(2)
	require.False(t, p.Frozen())
	for _, id := range ids {
		require.False(t, stopped(t, id))
	}
	require.NoError(t, p.Freeze(1), "an order that is older than the newest one")
	require.False(t, p.Frozen())
	require.False(t, stopped(t, ids[0]))
}

func TestAFrozenTreeHandlesSIGTERM(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "done")
	p, ids := frozenTree(t, `trap "touch `+mark+`; exit 0" TERM; while :; do sleep 0.01; done`)
	require.True(t, stops(t, p).Interrupted)
	require.FileExists(t, mark)
	for _, id := range ids {
		require.False(t, lives(t, id))
	}
	require.ErrorIs(t, p.Freeze(9), ErrUnavailable)
}

func TestAFrozenTreeIsKilled(t *testing.T) {
	p, ids := frozenTree(t, "wait")
	p.Kill("a test")
	require.True(t, ends(t, p).Killed)
	for _, id := range ids {
		require.False(t, lives(t, id))
	}
}
