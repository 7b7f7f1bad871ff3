//go:build !linux

package tree

import (
	"context"
	"errors"
	"log/slog"
)

// BecomeSubreaper fails: only Linux has child subreapers.
func BecomeSubreaper() error { return errors.New("this system has no child subreapers") }

// ReapOrphans only waits for ctx: without a subreaper this process adopts no orphans.
func ReapOrphans(ctx context.Context, _ *slog.Logger, _ func(*Entry) bool) { <-ctx.Done() }
