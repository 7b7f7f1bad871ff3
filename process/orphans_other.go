//go:build !linux

package process

import "context"

// reapOrphans has nothing to do where no orphans are adopted.
func (s *Supervisor) reapOrphans(ctx context.Context) { <-ctx.Done() }
