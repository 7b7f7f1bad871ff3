package wire

import "io"

// unpolled leaves out as it is: other systems' pollers watch reading and writing separately.
func unpolled(out io.WriteCloser) io.WriteCloser { return out }
