package worker

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/policy"
)

func TestTheTightestLimitIsTheMemoryOfTheHost(t *testing.T) {
	const meminfo = "MemTotal:       16384 kB\nMemFree:         100 kB\nMemAvailable:    8192 kB\n"
	const mib = 1 << 20
	const quiet, stalled = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 " +
		"total=0\n",
		"some avg10=31.50 avg60=9.00 avg300=1.00 total=1\nfull avg10=8.25 avg60=1.00 avg300=0.00 total=1\n"
	group := func(dir string, limit any, use, cache int) map[string]string {
		return map[string]string{
			dir + "/memory.max": fmt.Sprintln(limit), dir + "/memory.current": fmt.Sprintln(use),
			dir + "/memory.stat": fmt.Sprintf("anon 1\ninactive_file %d\n", cache),
		}
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  hostMemory
	}{
		"the host alone": {map[string]string{}, hostMemory{TotalBytes: 16 * mib, AvailableBytes: 8 * mib}},
		"stalls of the host": {
			map[string]string{"proc/pressure/memory": stalled},
			hostMemory{TotalBytes: 16 * mib, AvailableBytes: 8 * mib,
				HostMemory: policy.HostMemory{SomeAvg10: 31.5, FullAvg10: 8.25}},
		},
		"a cgroup with a limit and reclaimable cache": {
			merge(group("sys/fs/cgroup/a/b", 4*mib, 3*mib, mib), map[string]string{"proc/self/cgroup": "0::/a/b\n"}),
			hostMemory{TotalBytes: 4 * mib, AvailableBytes: 2 * mib},
		},
		"a limit of a parent cgroup": {
			merge(group("sys/fs/cgroup/a/b", "max", mib, 0), group("sys/fs/cgroup/a", 2*mib, mib, 0),
				map[string]string{"proc/self/cgroup": "0::/a/b\n"}),
			hostMemory{TotalBytes: 2 * mib, AvailableBytes: mib},
		},
		"usage above the limit": {
			merge(group("sys/fs/cgroup/a", 2*mib, 3*mib, 0), map[string]string{"proc/self/cgroup": "0::/a\n"}),
			hostMemory{TotalBytes: 2 * mib, AvailableBytes: 0},
		},
		"a limit beyond the host's memory": {
			merge(group("sys/fs/cgroup/a", 64*mib, mib, 0), map[string]string{"proc/self/cgroup": "0::/a\n"}),
			hostMemory{TotalBytes: 16 * mib, AvailableBytes: 8 * mib},
		},
		"stalls of the cgroup": {
			map[string]string{"proc/self/cgroup": "0::/a\n", "proc/pressure/memory": quiet,
				"sys/fs/cgroup/a/memory.pressure": stalled},
			hostMemory{TotalBytes: 16 * mib, AvailableBytes: 8 * mib,
				HostMemory: policy.HostMemory{SomeAvg10: 31.5, FullAvg10: 8.25}},
		},
		"cgroup v1 in a container that sees only the mount": {
			map[string]string{
				"proc/self/cgroup":                           "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n",
				"sys/fs/cgroup/memory/memory.limit_in_bytes": fmt.Sprintln(4 * mib),
				"sys/fs/cgroup/memory/memory.usage_in_bytes": fmt.Sprintln(3 * mib),
				"sys/fs/cgroup/memory/memory.stat":           fmt.Sprintf("total_inactive_file %d\n", mib/2),
			},
			hostMemory{TotalBytes: 4 * mib, AvailableBytes: mib + mib/2},
		},
		"malformed files": {
			map[string]string{"proc/self/cgroup": "\n:\nx\n0::/a\n", "proc/pressure/memory": "some avg10=x\nfull\n",
				"sys/fs/cgroup/a/memory.max": "lots"},
			hostMemory{TotalBytes: 16 * mib, AvailableBytes: 8 * mib},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			c.files["proc/meminfo"] = meminfo
			for file, text := range c.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o644))
			}
			memory, err := readHostMemory(root)
			require.NoError(t, err)
			require.Equal(t, c.want, memory)
		})
	}
}

func merge(all ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, m := range all {
		maps.Copy(merged, m)
	}
	return merged
}

func TestTheMemoryOfThisHostCanBeRead(t *testing.T) {
	memory, err := readHostMemory("/")
	require.NoError(t, err)
	require.Positive(t, memory.TotalBytes)
	require.LessOrEqual(t, memory.AvailableBytes, memory.TotalBytes)
	_, err = readHostMemory(t.TempDir())
	require.ErrorContains(t, err, "read the host's memory")
}
