package process

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/process/tree"
)

func TestASampleCoversTheWholeTree(t *testing.T) {
	for name, take := range map[string]func(*Process, context.Context) (api.Sample, error){
		"a sample": (*Process).Sample, "the first one": (*Process).FirstSample,
	} {
		t.Run(name, func(t *testing.T) {
			p := begin(t, open(t), python(t))
			alone, err := take(p, t.Context())
			require.NoError(t, err)
			require.Zero(t, alone.Children)
			require.Positive(t, alone.PSSBytes)
			require.Positive(t, alone.OpenFiles)
			require.Positive(t, alone.Threads)
			require.Nil(t, alone.Network, "it has the network of this host")
			require.Equal(t, alone, p.LatestSample())

			call(t, p, "fork_holder", "null")
			call(t, p, "hold", "64")
			call(t, p, "burn", "0.2")
			eventually(t, func() bool {
				sample, err := take(p, t.Context())
				return err == nil && sample.Children == 1 && sample.RSSBytes > alone.RSSBytes+(64<<20) && sample.CPUPercent > 0
			}, "a child in a session of its own, the memory and the time must show")
			sample, err := p.FreshSample(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, sample.Children)
		})
	}
}

// Otherwise its I/O would count twice: as that of a process that has ended, and again with the next sample.
func TestAFirstSampleKeepsWhatASampleBeforeItHad(t *testing.T) {
	p := begin(t, open(t), sh("(sleep 1000 &); exec sleep 1000"))
	eventually(t, func() bool {
		sample, err := p.FreshSample(t.Context())
		return err == nil && sample.Children == 1
	}, "the process without a parent must show")
	first, err := p.FirstSample(t.Context())
	require.NoError(t, err)
	require.Positive(t, first.Children)
}

func TestProcessesAreSampledPeriodically(t *testing.T) {
	p := begin(t, open(t, func(c *Config) { c.SampleEvery = 10 * time.Millisecond }), runs("sleep", "1000"))
	eventually(t, func() bool { return p.LatestSample().RSSBytes > 0 }, "no sample")
}

func TestAnEndedProcessCannotBeSampled(t *testing.T) {
	p := begin(t, open(t), runs("sleep", "1000"))
	stops(t, p)
	require.ErrorIs(t, errorOf(p.Sample(t.Context())), tree.ErrEnded)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, errorOf(p.Sample(ended)), context.Canceled)
}
