package cli

import (
	"bufio"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/redact"
)

const (
	// defaultLogLines are shown of each worker.
	defaultLogLines = 200
	// maxPoolLogLines bounds what is asked of each worker of a pool, which may have thousands.
	maxPoolLogLines = 10_000
	// maxLogLines bounds what is asked of one worker.
	maxLogLines = 100_000
)

func (a *app) logsCommand() *cobra.Command {
	var o tempool.LogOptions
	var since time.Duration
	c := &cobra.Command{
		Use:   "logs POOL[/N]",
		Short: "Show what the processes of a worker, or of a pool, wrote",
		Long: `Show what the processes of a worker, or of all workers of a pool, wrote to stderr, and to stdout where
the protocol leaves that free: the newest 200 lines of each worker. Lines of all hosts are merged by the time of their
host. Each line names the worker, the incarnation and the stream. Lines of the stream tempool are not from the program:
they say when a process started and how it ended, show the traceback of a call that raised, and count lines that were
dropped because they came too fast or the disk was full.

Each agent keeps the newest lines of each worker on its disk, 8 MiB unless tempool agent --log-size says otherwise. It
must be running, and you need the right read on the pool.`,
		Example: `  tempool logs python/0
  tempool logs python/0 --previous
  tempool logs python -f --since 10m
  tempool logs python/0 -n -1 -o json | jq -r 'select(.stream == "stderr") | .text'`,
	}
	f := c.Flags()
	f.BoolVarP(&o.Follow, "follow", "f", false, "continue with new lines until interrupted")
	f.BoolVar(&o.Previous, "previous", false, "show the newest incarnation that has ended, up to its last output")
	f.DurationVar(&since, "since", 0, "only lines newer than this, such as 10m")
	f.IntVarP(&o.Tail, "lines", "n", defaultLogLines,
		"maximum number of lines per worker, the newest ones; -1 for all lines of one worker")
	checkFlags(c, func(*cobra.Command) error {
		_, slot, err := poolOrWorker(c.Flags().Arg(0))
		switch {
		case err != nil: // takeUsage says so
			return nil
		case o.Follow && o.Previous:
			return usagef("--follow and --previous are mutually exclusive: an incarnation that has ended writes no more")
		case since < 0:
			return usagef("--since is %s; give a duration above zero, such as 10m", since)
		case o.Tail < -1, o.Tail > maxLogLines, slot == nil && (o.Tail < 0 || o.Tail > maxPoolLogLines):
			return usagef("--lines is %d; give 0 to %d, for one worker up to %d or -1 for all", o.Tail, maxPoolLogLines,
				maxLogLines)
		}
		return nil
	})
	return a.gatewaysCommand(c, func(ctx context.Context, cp controlPlane, args []string) error {
		name, slot, _ := poolOrWorker(args[0]) // checkArguments has parsed it
		o.Worker = slot
		if since > 0 {
			o.Since = a.now().Add(-since)
		}
		return a.printLogs(ctx, cp.Pool(name), o)
	})
}

// printLogs prints lines as they come. The end of ctx is the usual end of a log that is followed.
func (a *app) printLogs(ctx context.Context, p pool, o tempool.LogOptions) error {
	var unread error // of a gateway that may have had lines
	o.Unreachable = func(endpoint string, err error) {
		unread = err
		a.warn(fmt.Sprintf("no logs from the gateway at %s: %s", redact.URLs(endpoint), message(err)))
	}
	out := bufio.NewWriter(a.out) // Flush returns the error of the first write that failed
	lines := 0
	yield := func(line api.LogLine) {
		lines++
		a.printLogLine(out, line, o.Worker == nil)
		if o.Follow {
			_ = out.Flush()
		}
	}
	limited, cancel := context.WithCancel(ctx)
	if !o.Follow {
		limited, cancel = a.request(ctx)
	}
	defer cancel()
	err := p.Logs(limited, o, yield)
	switch {
	case o.Follow && ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	case lines == 0 && unread != nil && !o.Follow:
		return unread
	}
	return out.Flush()
}

func (a *app) printLogLine(out *bufio.Writer, line api.LogLine, named bool) {
	if a.format == formatJSON {
		_ = writeJSONLine(out, line)
		return
	}
	text, worker := line.Text, ""
	if a.outTerminal {
		text = printable(text)
	}
	if named {
		worker = line.Worker + " "
	}
	fmt.Fprintf(out, "%s %s#%d %s: %s\n", line.At.UTC().Format("2006-01-02T15:04:05.000Z"), worker,
		line.Incarnation, line.Stream, text)
}
