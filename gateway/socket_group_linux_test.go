package gateway

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tempool/tempool/internal/need"
)

func TestTheSocketsGroupMayCallButNotAdministrate(t *testing.T) {
	need.Root(t) // only it can act as another user
	const gid, uid = 54321, 54322
	e := parallel(t, 1, withConfig(func(c *Config) { c.Security.SocketGroup = strconv.Itoa(gid) }))
	info, err := os.Stat(e.file("gw.sock"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), info.Mode().Perm())
	require.NoError(t, os.Chmod(filepath.Dir(e.dir), 0o711)) // the folder of this test
	status := func(gid int, path string) (int, error) { return e.statusAs(uid, gid, path) }
	for path, want := range map[string]int{"/v1/pools": 200, "/v1/sessions": 403, "/v1/admin/sessions/copy": 403} {
		got, err := status(gid, path)
		require.NoError(t, err)
		require.Equal(t, want, got, path)
	}
	require.ErrorIs(t, errorOf(status(gid+1, "/v1/pools")), os.ErrPermission)
}

// statusAs returns the status of a GET by another user.
func (e *env) statusAs(uid, gid int, path string) (int, error) {
	type result struct {
		status int
		err    error
	}
	r := await(e.t, background(func() result {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		for _, failed := range []unix.Errno{rawSetID(unix.SYS_SETGROUPS, 0, 0), rawSetID(unix.SYS_SETRESGID, gid, gid),
			rawSetID(unix.SYS_SETRESUID, uid, uid)} {
			if failed != 0 {
				return result{0, failed}
			}
		}
		c, err := dialPlain("unix", e.file("gw.sock"))
		if err != nil {
			return result{0, err}
		}
		defer c.conn.Close()
		a, err := c.ask("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		return result{a.status, err}
	}))
	return r.status, r.err
}

// rawSetID changes an id of this thread only.
func rawSetID(call uintptr, real, effective int) unix.Errno {
	_, _, failed := unix.RawSyscall(call, uintptr(real), uintptr(effective), uintptr(effective))
	return failed
}
