package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/atomicfile"
)

// backupLimit bounds an export and an import.
const backupLimit = time.Hour

func (a *app) sessionsExportCommand() *cobra.Command {
	return a.sessionCommand(&cobra.Command{
		Use:   "export POOL FILE|-",
		Short: "Back a pool's session store up to a file",
		Long: `Back a pool's session store up to a file while the sessions are in use, or write the backup to standard
output (-). The file is replaced only by a complete backup, and only its owner can read it. Pools of one host with the
same sessions.store and sessions.url share a store. Each session is in the backup as it is when it is read; its life is not
extended.`,
		Example: `  tempool sessions export python sessions.jsonl
  tempool sessions export python - | gzip > sessions.jsonl.gz`,
	}, backupLimit, func(ctx context.Context, p *tempool.Pool, args []string) error {
		if args[1] == "-" {
			out := bufio.NewWriter(a.out)
			_, err := p.ExportSessions(ctx, out)
			return errors.Join(err, out.Flush())
		}
		if info, err := os.Stat(args[1]); err == nil && !info.Mode().IsRegular() {
			return api.Errorf(api.CodeInvalid,
				"cannot replace %s with a backup: it is not a regular file; write - for standard output", args[1])
		}
		var end *api.SessionBackupEnd
		var failure error
		err := atomicfile.StreamDurably(args[1], 0o600, func(out io.Writer) error {
			end, failure = p.ExportSessions(ctx, out)
			return failure
		})
		switch {
		case api.CodeOf(failure) != "":
			return failure
		case err != nil:
			return api.Errorf(api.CodeInvalid, "cannot write the backup %s: %w", args[1], err)
		}
		return a.printMessage(end, "exported %d sessions to %s", end.Sessions, args[1])
	})
}

func (a *app) sessionsImportCommand() *cobra.Command {
	var options tempool.ImportOptions
	c := &cobra.Command{
		Use:   "import POOL FILE|-",
		Short: "Restore a pool's sessions from a backup",
		Long: `Restore a pool's sessions from a backup while they are in use. Sessions that do not exist are created
with the version, the times and the TTL of the backup, those with a lower version are replaced. All others are kept: an
import never replaces a newer session. Sessions that have expired are not restored. An import evicts nothing: it fails
at sessions.max. An import that failed can be repeated.`,
		Example: `  tempool sessions import python sessions.jsonl
  gunzip < sessions.jsonl.gz | tempool sessions import python -`,
	}
	c.Flags().BoolVar(&options.AnyPool, "any-pool", false, "accept the backup of another pool")
	return a.sessionCommand(c, backupLimit, func(ctx context.Context, p *tempool.Pool, args []string) error {
		in := a.in
		if args[1] != "-" {
			file, err := os.Open(args[1])
			if err != nil {
				return api.Errorf(api.CodeInvalid, "cannot read the backup: %w", err)
			}
			defer file.Close()
			in = file
		}
		done, err := p.ImportSessions(ctx, in, options)
		if err != nil {
			return err
		}
		return a.printMessage(done, "imported %s: %s", args[1], done)
	})
}
