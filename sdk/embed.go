// Package sdk holds the SDKs that worker programs import, for programs that bring them along.
package sdk

import "embed"

// Python is the Python SDK: python/tempool, whose parent folder belongs in PYTHONPATH.
//
//go:embed python/tempool/*.py
var Python embed.FS
