package process

import (
	"context"
	"syscall"

	"github.com/tempool/tempool/process/tree"
)

// kind is what runs one incarnation. Its Process decides when it starts and stops, speaks the protocol, and classifies
// its end; the kind carries that out. There is one for each value of pool.kind, and the tests of kind_test.go hold for
// all of them.
type kind interface {
	// start runs the incarnation, and opens the Process's connection unless its protocol is none. If it fails, nothing is
	// left to release.
	start() error
	// wait returns once the incarnation has exited, whether or not stop was called.
	wait()
	// stop asks the incarnation to end, or with force ends it. It does not block, and may be called again, with force too.
	stop(force bool)
	// end ends what an incarnation that has exited left behind, and returns how it ended. It is called once, after wait.
	end() ending
	// release returns what the incarnation held of this host; not if end could not end all of it.
	release()
	// probe is a health check of another kind than rpc.
	probe(ctx context.Context) error
}

// ending is how an incarnation ended.
type ending struct {
	code   int // -1 if unknown
	signal syscall.Signal
	left   tree.KillReport

	inAgent bool   // there was no process that had a code and a signal for others to see
	status  string // of an end within the agent that nothing has cut
	failure string // why the incarnation failed, if anything is known in addition to the code
	note    string // what else the reason should say
}
