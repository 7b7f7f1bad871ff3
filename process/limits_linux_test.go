package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/limits"
	"github.com/tempool/tempool/process/tree"
	"github.com/tempool/tempool/spec"
)

// contentOf waits until a script has written a whole line to a file.
func contentOf(t *testing.T, name string) string {
	t.Helper()
	var text string
	eventually(t, func() bool {
		data, _ := os.ReadFile(name)
		text = string(data)
		return strings.HasSuffix(text, "\n")
	}, "nothing in %s", filepath.Base(name))
	return strings.TrimSpace(text)
}

func TestLimitsAreInForceBeforeTheProgramRuns(t *testing.T) {
	for name, c := range map[string]struct {
		limits     spec.Limits
		script     string // prints what is in force, before anything else
		want       string
		mechanisms map[string]limits.Mechanism
	}{
		"open files": {spec.Limits{OpenFiles: 321}, "echo $(ulimit -Sn) $(ulimit -Hn)", "321 321",
			map[string]limits.Mechanism{"open_files": limits.ByRlimit}},
		"CPU time": {spec.Limits{CPUTime: spec.Duration(90 * time.Second)}, "echo $(ulimit -St) $(ulimit -Ht)", "90 91",
			map[string]limits.Mechanism{"cpu_time": limits.ByRlimit}},
		"CPU time counts in whole seconds": {
			spec.Limits{CPUTime: spec.Duration(1500 * time.Millisecond)}, "ulimit -St", "2",
			map[string]limits.Mechanism{"cpu_time": limits.ByRlimit},
		},
		"priority": {spec.Limits{Nice: 7}, "cut -d' ' -f19 /proc/$$/stat", "7",
			map[string]limits.Mechanism{"nice": limits.ByScheduler}},
		"cores": {spec.Limits{CPUAffinity: []int{0}}, "grep Cpus_allowed_list /proc/$$/status | cut -f2", "0",
			map[string]limits.Mechanism{"cpu_affinity": limits.ByScheduler}},
		"the kernel's choice of whom to kill": {
			spec.Limits{OOMScoreAdj: 321}, "cat /proc/$$/oom_score_adj", "321",
			map[string]limits.Mechanism{"oom_score_adj": limits.ByKernel},
		},
		"no limits at all": {spec.Limits{}, "echo free", "free", map[string]limits.Mechanism{}},
		"all of them in a grandchild": {
			spec.Limits{OpenFiles: 99, Nice: 3, CPUAffinity: []int{0}, OOMScoreAdj: 5, CPUTime: spec.Duration(time.Hour)},
			`sh -c 'sh -c "echo \$(ulimit -n) \$(ulimit -t) \$(cut -d\" \" -f19 /proc/\$\$/stat) \$(cat ` +
				`/proc/\$\$/oom_score_adj)"'`, "99 3600 3 5",
			map[string]limits.Mechanism{"open_files": limits.ByRlimit, "nice": limits.ByScheduler,
				"cpu_affinity": limits.ByScheduler, "oom_score_adj": limits.ByKernel, "cpu_time": limits.ByRlimit},
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "out")
			p := begin(t, open(t), limited(c.script+" > "+file+"; exec sleep 1000", c.limits))
			require.Equal(t, c.want, contentOf(t, file))
			require.Equal(t, c.mechanisms, p.LimitMechanisms())
		})
	}
}

func TestTheLauncherPassesEnvironmentDescriptorsAndArguments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	sp := runs("sh", "-c", `{ env; ls /proc/$$/fd; echo "$0 $1"; } > `+file+`.part; mv `+file+`.part `+file+
		`; exec sleep 1000`, "zero", "one")
	sp.Limits.OpenFiles = 64
	sp.Pool.Env = map[string]string{"GREETING": "hello there"}
	begin(t, open(t), sp)
	text := contentOf(t, file)
	require.Contains(t, text, "GREETING=hello there\n")
	require.NotContains(t, text, "GOMAXPROCS", "what the launcher is given is its own")
	require.Contains(t, text, "\nzero one")
	require.NotContains(t, text, "\n3\n", "the launcher's socket does not reach the program")
}

func TestALimitThatCannotBeSetFailsTheStart(t *testing.T) {
	for name, c := range map[string]struct {
		limits spec.Limits
		want   string
	}{
		"a core the host has not": {spec.Limits{CPUAffinity: []int{0, 4000}}, "this host has no core 4000"},
		"no core of the host": {spec.Limits{CPUAffinity: []int{4000}},
			"names no core that this host lets the agent use"},
		"a program that cannot execute": {spec.Limits{OpenFiles: 99}, "exec format error; a script needs a first line"},
	} {
		t.Run(name, func(t *testing.T) {
			sp := limited("exec sleep 1000", c.limits)
			if len(c.limits.CPUAffinity) == 0 {
				file := filepath.Join(t.TempDir(), "program")
				require.NoError(t, os.WriteFile(file, []byte("no program"), 0o700))
				sp.Pool.Command = []string{file}
			}
			s := open(t)
			startFails(t, s, launch("p/0", 1, sp), c.want)
			require.Zero(t, s.Live())
			require.Empty(t, cookieHolders(t, s.state.id))
		})
	}
}

func TestAProgramThatExceedsItsCPUTimeFailsWithTheLimitInItsReason(t *testing.T) {
	p := begin(t, open(t), limited("while :; do :; done", spec.Limits{CPUTime: spec.Duration(time.Second)}))
	exit := ends(t, p)
	require.Equal(t, "SIGXCPU", exit.Signal)
	require.Contains(t, exit.Reason, `exceeded limits.cpu_time = "1s"`)
}

func TestTheSamplerReportsAndKillsATreeAboveItsMemoryLimit(t *testing.T) {
	hog := func(mib int) spec.Spec {
		sp := runs("python3", "-c", "import time\nx = bytearray("+strconv.Itoa(mib)+
			" << 20)\nfor i in range(0, len(x), 4096): x[i] = 1\ntime.sleep(1000)")
		sp.Limits.Memory = 64 << 20
		return sp
	}
	quick := func(c *Config) { c.EnforceEvery = 10 * time.Millisecond }
	t.Run("above the limit", func(t *testing.T) {
		p := begin(t, open(t, quick), hog(64))
		await(t, p.Exceeded(), "no violation was reported")
		require.Equal(t, "memory", p.Violation().Limit)
		require.Contains(t, p.Violation().Reason, `limits.memory = "64MiB"`)
		require.Equal(t, map[string]limits.Mechanism{"memory": limits.BySampler, "open_files": limits.ByRlimit},
			p.LimitMechanisms())
		require.False(t, p.HasEnded(), "a violation must not end the process")
	})
	t.Run("at 1.5 times the limit", func(t *testing.T) {
		p, err := open(t, quick).Start(t.Context(), launch("p/0", 1, hog(200)))
		if err == nil {
			exit := ends(t, p)
			require.True(t, exit.Failed())
			err = &Error{Message: exit.Reason}
		}
		require.ErrorContains(t, err, `limits.memory = "64MiB"`)
	})
	t.Run("shared pages count once", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "pids")
		sp := runs("python3", "-c", `import os, sys, time
x = b"x" * (40 << 20)
for _ in range(4):
    if os.fork() == 0: time.sleep(1000)
open(sys.argv[1], "w").write("done\n")
time.sleep(1000)`, file)
		sp.Limits.Memory = 120 << 20
		p := begin(t, open(t, quick), sp)
		contentOf(t, file)
		table, err := tree.ReadTable()
		require.NoError(t, err)
		members := table.Members(p.treeKey())
		require.Len(t, members, 5)
		rss := int64(0)
		for _, m := range members {
			rss += m.RSS
		}
		require.Greater(t, rss, int64(sp.Limits.Memory), "the sum of RSS exceeds the limit")
		p.enforce(limits.NewSampled(p.Limits(), p.LimitMechanisms()), table)
		require.Zero(t, p.Violation())
	})
}

func TestALauncherThatDoesNotExecuteTheProgramInTimeSaysSo(t *testing.T) {
	sp := runs("sleep", "1000")
	sp.Start.Timeout = 1
	startFails(t, open(t), launch("p/0", 1, sp), "the program did not start within 1ns")
}

func TestTheSamplerReportsATreeWithTooManyProcesses(t *testing.T) {
	sp := limited("sleep 1000 & sleep 1000 & sleep 1000 & exec sleep 1000", spec.Limits{Processes: 3})
	p := begin(t, open(t, func(c *Config) { c.EnforceEvery = 10 * time.Millisecond }), sp)
	<-p.Exceeded()
	require.Equal(t, "processes", p.Violation().Limit)
	require.Contains(t, p.Violation().Reason, "process tree has 4 processes (limits.processes = 3)")
}

func TestMemoryAndCPUOfARunningProcessChange(t *testing.T) {
	p := begin(t, open(t), sh("exec sleep 1000"))
	want := p.Limits()
	want.Memory, want.CPU = 1<<40, 2
	mechanisms, err := p.ApplyLimits(1<<40, 2)
	require.NoError(t, err)
	require.Equal(t, map[string]limits.Mechanism{"memory": limits.BySampler, "cpu": limits.BySampler,
		"open_files": limits.ByRlimit}, mechanisms)
	require.Equal(t, mechanisms, p.LimitMechanisms())
	require.Equal(t, want, p.Limits())
	stops(t, p)
	require.ErrorIs(t, errorOf(p.ApplyLimits(1<<40, 2)), ErrUnavailable)
}

func TestCPUAffinityEachBindsAWorkerToOneCore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "out")
	report := "grep Cpus_allowed_list /proc/$$/status | cut -f2 > " + file + "; exec sleep 1000"
	p := begin(t, open(t), limited(report, spec.Limits{CPUAffinityEach: 1}))
	host := limits.DetectHost().Cores
	require.NotEmpty(t, host)
	core, err := strconv.Atoi(contentOf(t, file))
	require.NoError(t, err, "one, and no list")
	require.Contains(t, host, core)
	require.Equal(t, map[string]limits.Mechanism{"cpu_affinity_each": limits.ByScheduler}, p.LimitMechanisms())
}
