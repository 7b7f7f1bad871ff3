package tree

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/internal/sleep"
)

// proc makes a row; PIDs of these tests start at 1000 above what this machine gives out, so none is this process's.
func proc(pid, Parent, sid int, start uint64) *Entry {
	return &Entry{Identity: Identity{PID: pid, Start: start}, Parent: Parent, pgid: sid, Session: sid}
}

func dead(r *Entry) *Entry {
	r.Zombie = true
	return r
}

const high = 1 << 30

func TestMembersOfATree(t *testing.T) {
	self := os.Getpid()
	root := Identity{PID: high, Start: 100}
	for _, c := range []struct {
		name    string
		rows    []*Entry
		cookies map[int]string
		known   []Identity
		pinned  bool
		want    []int
	}{
		{
			name: "the root and its children", pinned: true,
			rows: []*Entry{proc(high, self, high, 100), proc(high+1, high, high, 101), proc(high+9, self, high+9, 101)},
			want: []int{high, high + 1},
		},
		{
			name: "a descendant in a session of its own brings that session along", pinned: true,
			rows: []*Entry{proc(high, self, high, 100), proc(high+1, high, high+1, 101), proc(high+2, self, high+1, 102)},
			want: []int{high, high + 1, high + 2},
		},
		{
			name: "an orphan that carries the cookie", pinned: true,
			rows: []*Entry{dead(proc(high, self, high, 100)), proc(high+1, self, high+1, 101),
				proc(high+2, self, high+2, 101)},
			cookies: map[int]string{high + 1: "ours", high + 2: "another's"},
			want:    []int{high + 1},
		},
		{
			name: "an orphan without cookie that was seen before", pinned: true,
			rows:  []*Entry{dead(proc(high, self, high, 100)), proc(high+1, self, high+1, 101)},
			known: []Identity{{PID: high + 1, Start: 101}},
			want:  []int{high + 1},
		},
		{
			name: "a process that got the PID of a known member is a stranger", pinned: true,
			rows:  []*Entry{dead(proc(high, self, high, 100)), proc(high+1, self, high+1, 999)},
			known: []Identity{{PID: high + 1, Start: 101}},
		},
		{
			name: "a process that got the PID of the root, and its children, are strangers",
			rows: []*Entry{proc(high, 1, high, 999), proc(high+1, high, high, 1000)},
		},
		{
			name: "the session outlives its leader",
			rows: []*Entry{proc(high+1, 1, high, 101)},
			want: []int{high + 1},
		},
		{
			name: "a session older than the root only has its number",
			rows: []*Entry{proc(high+1, 1, high, 99)},
		},
		{
			name: "this process is never a member, nor is its session", pinned: true,
			rows: []*Entry{
				proc(self, 1, high+7, 50), proc(high, self, high, 100), proc(high+1, high, high+7, 101),
				proc(high+2, 1, high+7, 60),
			},
			cookies: map[int]string{self: "ours"},
			want:    []int{high, high + 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			known := &MemberSet{ids: make(map[Identity]time.Time)}
			for _, id := range c.known {
				known.ids[id] = time.Time{}
			}
			for _, r := range c.rows {
				r.cookie = c.cookies[r.PID]
			}
			table := newTable(time.Now(), c.rows)
			var pids []int
			for _, m := range table.Members(Key{Root: root, Cookie: "ours", Unreaped: c.pinned, Known: known}) {
				pids = append(pids, m.PID)
				require.True(t, known.Has(m.Identity), "members become known")
			}
			slices.Sort(pids)
			require.Equal(t, c.want, pids)
		})
	}
}

func TestAnOlderTableDoesNotRemoveWhatALaterOneHasFound(t *testing.T) {
	known := &MemberSet{}
	key := Key{Root: Identity{PID: high, Start: 1}, Unreaped: true, Known: known}
	root, child := proc(high, 1, high, 1), proc(high+1, high, high+1, 2)
	began := time.Now()
	newTable(began.Add(-time.Second), []*Entry{root, child}).Members(key)
	newTable(began.Add(-2*time.Second), []*Entry{root}).Members(key)
	require.Len(t, known.List(), 2, "its read began earlier")
	newTable(began.Add(-time.Millisecond), []*Entry{root}).Members(key)
	require.Len(t, known.List(), 2, "its read began before the other ended")
	newTable(time.Now(), []*Entry{dead(root)}).Members(key)
	require.Equal(t, []Identity{root.Identity}, known.List())
}

func TestSignalChecksTheStartTime(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	require.NoError(t, StartChild(cmd))
	id, found := Identify(cmd.Process.Pid)
	require.True(t, found)
	other := id
	other.Start--
	require.ErrorIs(t, Signal(other, syscall.SIGKILL), syscall.ESRCH)
	require.True(t, id.Exists())
	require.NoError(t, Signal(id, syscall.SIGKILL))
	require.Error(t, WaitChild(cmd))
	require.ErrorIs(t, Signal(id, syscall.SIGKILL), syscall.ESRCH)
}

// The process table may refuse what it says of a child, such as for want of descriptors.
func TestTheExitOfAChildWhoseStartIsUnknownIsAwaited(t *testing.T) {
	cmd := exec.Command("cat")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	exited := sleep.Done(WatchExit(Identity{PID: cmd.Process.Pid}))
	require.Never(t, func() bool { return sleep.Ended(exited) }, 100*time.Millisecond, 10*time.Millisecond)
	require.NoError(t, stdin.Close())
	<-exited
	require.NoError(t, cmd.Wait())
}

func TestSignalGroupRejectsTheSpecialGroupNumbers(t *testing.T) {
	for _, pgid := range []int{-1, 0, 1} {
		require.Error(t, SignalGroup(pgid, 0), "a signal to them would reach processes of others")
	}
}

func TestCookies(t *testing.T) {
	cookie := NewCookie("host:a", "python/0", 7, "abcd1234")
	require.Regexp(t, `^host:a:python/0:7:abcd1234\.[0-9a-f]{16}$`, cookie)
	require.NotEqual(t, cookie, NewCookie("host:a", "python/0", 7, "abcd1234"))
	require.True(t, CookieBelongsTo(cookie, "host:a", "abcd1234"))
	require.False(t, CookieBelongsTo(cookie, "host:a", "ffff0000"), "another state folder's")
	require.False(t, CookieBelongsTo(cookie, "host:b", "abcd1234"), "another host's")

	require.Equal(t, cookie, parseCookie([]byte("A=1\x00TEMPOOL_INCARNATION="+cookie+"\x00B=2\x00")))
	require.Empty(t, parseCookie([]byte("XTEMPOOL_INCARNATION="+cookie+"\x00")))
	require.Empty(t, parseCookie(nil))
}
