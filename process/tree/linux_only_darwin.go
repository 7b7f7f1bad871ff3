package tree

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/tempool/tempool/api"
)

// ReadFamily always fails: one call of the system reads all processes anyway.
func ReadFamily(int) (*Table, error) {
	return nil, errors.New("this system does not list the children of processes")
}

// openPidfd returns nil: only Linux has pidfds.
func openPidfd(int) *os.File { return nil }

// Only Linux has marks.

func ownMark() Mark              { return 0 }
func readMark(int) (Mark, error) { return 0, nil }
func (Mark) Below() Mark         { return 0 }

// Adopt fails: only Linux has child subreapers.
func Adopt(context.Context, int, Mark, Mark) (Identity, error) {
	return Identity{}, errors.ErrUnsupported
}

// interfacesOf returns nil: only Linux has network namespaces.
func interfacesOf([]*Entry, Key) map[networkInterface]api.NetworkBytes { return nil }

// BecomeSubreaper fails: only Linux has child subreapers.
func BecomeSubreaper() error { return errors.New("this system has no child subreapers") }

// ReapOrphans only waits for ctx: without a subreaper this process adopts no orphans.
func ReapOrphans(ctx context.Context, _ *slog.Logger) { <-ctx.Done() }

// OwnTrees does nothing: no process escapes.
func OwnTrees(func(*Entry) bool) (release func()) { return func() {} }

// KillEscaped does nothing: only Linux has marks, and programs that adopt processes.
func KillEscaped() (killed int, err error) { return 0, nil }
