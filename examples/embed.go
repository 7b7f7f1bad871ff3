// Package examples embeds the example pools that programs start.
package examples

import "embed"

// Codemetrics is the folder codemetrics, a pool of Python processes that measure Python code. It expects the Python SDK
// in ../sdk/python, relative to the parent of codemetrics.
//
//go:embed codemetrics/pool.toml codemetrics/*.py
var Codemetrics embed.FS
