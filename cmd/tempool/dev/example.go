package dev

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/cmd/tempool/codemetrics"
	"github.com/tempool/tempool/examples"
	"github.com/tempool/tempool/internal/logging"
	"github.com/tempool/tempool/sdk"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

// exampleName is the pool on which the job can run.
const exampleName = "codemetrics"

// loadSpec reads the pool's file; that of the example is embedded in this program.
func (s *starter) loadSpec() (spec.Spec, error) {
	file := s.options.PoolFile
	if file == "" {
		var err error
		if file, err = unpackExample(filepath.Join(s.data.path, "files")); err != nil {
			return spec.Spec{}, fmt.Errorf("unpack the example: %w", err)
		}
	}
	return spec.Load(file)
}

// unpackExample writes the example and the Python SDK below root, with the layout of the repository, and returns the
// path of its pool.toml. The folder's name is a hash of the content, so another version has another path, and a running
// pool is rolled out to it.
func unpackExample(root string) (string, error) {
	hash := sha256.New()
	archive := tar.NewWriter(hash)
	if err := errors.Join(archive.AddFS(examples.Codemetrics), archive.AddFS(sdk.Python), archive.Close()); err != nil {
		return "", err
	}
	into := filepath.Join(root, hex.EncodeToString(hash.Sum(nil)[:6]))
	if err := os.RemoveAll(into); err != nil { // what an earlier run has left, which CopyFS would not replace
		return "", err
	}
	return filepath.Join(into, "examples", exampleName, "pool.toml"), errors.Join(
		os.CopyFS(filepath.Join(into, "examples"), examples.Codemetrics), os.CopyFS(filepath.Join(into, "sdk"), sdk.Python))
}

// jobPatience is for how long calls about the same files may fail.
const jobPatience = 2 * time.Minute

// runJob runs the job on the pool, if that is the example, and prints its result.
func (s *starter) runJob(ctx context.Context) error {
	if s.library == nil {
		s.line("Pool %s is not %s, so there is no job to run.", s.spec.Pool.Name, exampleName)
		return nil
	}
	s.line("\nMeasuring the standard library of Python %s, %d files in %s.", s.library.Version,
		len(s.library.Files), s.library.Folder)
	// Over the gateway's own Unix socket, tempool dev needs neither a token nor a certificate.
	options := s.temporal
	options.Gateways = []string{"unix:" + filepath.Join(s.data.agentState(), worker.SocketName)}
	client, err := tempool.Dial(ctx, options)
	if err != nil {
		return err
	}
	defer client.Close()
	summary, err := codemetrics.Run(ctx, codemetrics.Config{
		Client: client, Pool: s.spec.Pool.Name, Files: s.library.Files, Concurrency: s.spec.Pool.Size,
		Patience: jobPatience, Progress: s.progress(len(s.library.Files)),
	})
	s.line("") // ends the line of the progress
	if err != nil {
		return err
	}
	s.line("%s", summaryText(summary))
	return nil
}

// progress shows the progress of a job: as a bar on a terminal, otherwise as a line for every 10 %.
func (s *starter) progress(total int) func(codemetrics.Summary) {
	tenths, terminal := 0, logging.Terminal(s.options.Out)
	return func(sum codemetrics.Summary) {
		now := 10 * sum.Files / max(1, total)
		if terminal {
			fmt.Fprintf(s.options.Out, "\r%-30s %d of %d files, %d calls retried", strings.Repeat("█", 3*now), sum.Files, total,
				sum.Retried)
		} else if now > tenths {
			s.line("%3d %%  %d of %d files", 10*now, sum.Files, total)
		}
		tenths = now
	}
}

// summaryText formats the result of a job.
func summaryText(s codemetrics.Summary) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "  files\t%d, %d of which do not parse\n", s.Files, s.Problems)
	fmt.Fprintf(table, "  bytes\t%d\n  lines\t%d\n  functions\t%d\n  classes\t%d\n", s.Bytes, s.Lines, s.Functions,
		s.Classes)
	fmt.Fprintf(table, "  cyclomatic complexity\t%d in all, %.2f for each function\n", s.Complexity,
		float64(s.Complexity)/float64(max(1, s.Functions)))
	fmt.Fprintf(table, "  time\t%s, %.0f files a second\n", s.Took.Round(10*time.Millisecond),
		float64(s.Files)/max(1e-3, s.Took.Seconds()))
	fmt.Fprintf(table, "  calls retried\t%d", s.Retried)
	_ = table.Flush() // into memory
	return text.String()
}
