package process

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// proc makes a row; PIDs of these tests start at 1000 above what this machine gives out, so none is this process's.
func proc(pid, ppid, sid int, start uint64) *row {
	return &row{identity: identity{PID: pid, Start: start}, ppid: ppid, pgid: sid, sid: sid}
}

func dead(r *row) *row {
	r.zombie = true
	return r
}

const high = 1 << 30

func TestMembersOfATree(t *testing.T) {
	self := os.Getpid()
	root := identity{PID: high, Start: 100}
	for _, c := range []struct {
		name    string
		rows    []*row
		cookies map[int]string
		known   []identity
		pinned  bool
		want    []int
	}{
		{
			name: "the root and its children", pinned: true,
			rows: []*row{proc(high, self, high, 100), proc(high+1, high, high, 101), proc(high+9, self, high+9, 101)},
			want: []int{high, high + 1},
		},
		{
			name: "a descendant in a session of its own brings that session along", pinned: true,
			rows: []*row{proc(high, self, high, 100), proc(high+1, high, high+1, 101), proc(high+2, self, high+1, 102)},
			want: []int{high, high + 1, high + 2},
		},
		{
			name: "an orphan that carries the cookie", pinned: true,
			rows:    []*row{dead(proc(high, self, high, 100)), proc(high+1, self, high+1, 101), proc(high+2, self, high+2, 101)},
			cookies: map[int]string{high + 1: "ours", high + 2: "another's"},
			want:    []int{high + 1},
		},
		{
			name: "an orphan without cookie that was seen before", pinned: true,
			rows:  []*row{dead(proc(high, self, high, 100)), proc(high+1, self, high+1, 101)},
			known: []identity{{PID: high + 1, Start: 101}},
			want:  []int{high + 1},
		},
		{
			name: "a process that got the PID of a known member is a stranger", pinned: true,
			rows:  []*row{dead(proc(high, self, high, 100)), proc(high+1, self, high+1, 999)},
			known: []identity{{PID: high + 1, Start: 101}},
		},
		{
			name: "a process that got the PID of the root, and its children, are strangers",
			rows: []*row{proc(high, 1, high, 999), proc(high+1, high, high, 1000)},
		},
		{
			name: "the session outlives its leader",
			rows: []*row{proc(high+1, 1, high, 101)},
			want: []int{high + 1},
		},
		{
			name: "a session older than the root only has its number",
			rows: []*row{proc(high+1, 1, high, 99)},
		},
		{
			name: "this process is never a member, nor is its session", pinned: true,
			rows: []*row{
				proc(self, 1, high+7, 50), proc(high, self, high, 100), proc(high+1, high, high+7, 101), proc(high+2, 1, high+7, 60),
			},
			cookies: map[int]string{self: "ours"},
			want:    []int{high, high + 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			known := &memberSet{ids: make(map[identity]struct{})}
			for _, id := range c.known {
				known.ids[id] = struct{}{}
			}
			for _, r := range c.rows {
				r.cookie = c.cookies[r.PID]
			}
			table := newTable(time.Now(), c.rows)
			var pids []int
			for _, m := range table.members(treeKey{Root: root, Cookie: "ours", pinned: c.pinned, known: known}) {
				pids = append(pids, m.PID)
				require.True(t, known.has(m.identity), "members become known")
			}
			slices.Sort(pids)
			require.Equal(t, c.want, pids)
		})
	}
}

func TestMembersThatAreGoneAreForgotten(t *testing.T) {
	known := &memberSet{}
	key := treeKey{Root: identity{PID: high, Start: 1}, pinned: true, known: known}
	newTable(time.Now(), []*row{proc(high, 1, high, 1), proc(high+1, high, high, 2)}).members(key)
	require.Len(t, known.list(), 2)
	newTable(time.Now(), []*row{dead(proc(high, 1, high, 1))}).members(key)
	require.Equal(t, []identity{{PID: high, Start: 1}}, known.list())
}

func TestASignalReachesOnlyTheVeryProcess(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	require.NoError(t, startChild(cmd))
	id, found := identify(cmd.Process.Pid)
	require.True(t, found)
	other := id
	other.Start--
	require.ErrorIs(t, signalIdentity(other, syscall.SIGKILL), syscall.ESRCH)
	require.True(t, lives(t, id))
	require.NoError(t, signalIdentity(id, syscall.SIGKILL))
	require.Error(t, waitChild(cmd))
	require.ErrorIs(t, signalIdentity(id, syscall.SIGKILL), syscall.ESRCH)
}

func TestOurOwnGroupAndEverybodyAreNeverSignalled(t *testing.T) {
	for _, pgid := range []int{-1, 0, 1} {
		require.Error(t, signalGroup(pgid, syscall.SIGKILL))
	}
}

func TestCookies(t *testing.T) {
	cookie := newCookie("host:a", "python/0", 7, "abcd1234")
	require.Regexp(t, `^host:a:python/0:7:abcd1234\.[0-9a-f]{16}$`, cookie)
	require.NotEqual(t, cookie, newCookie("host:a", "python/0", 7, "abcd1234"))
	require.True(t, cookieOfState(cookie, "host:a", "abcd1234"))
	require.False(t, cookieOfState(cookie, "host:a", "ffff0000"), "another state folder's")
	require.False(t, cookieOfState(cookie, "host:b", "abcd1234"), "another host's")

	require.Equal(t, cookie, cookieIn([]byte("A=1\x00TEMPOOL_INCARNATION="+cookie+"\x00B=2\x00")))
	require.Empty(t, cookieIn([]byte("XTEMPOOL_INCARNATION="+cookie+"\x00")))
	require.Empty(t, cookieIn(nil))
}
