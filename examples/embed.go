// Package examples holds the pools that come with Tempool, also inside the programs that start them.
package examples

import "embed"

// Codemetrics is the pool of Python processes that measure Python code: the folder codemetrics with its pool.toml. It finds the
// Python SDK at ../sdk/python, seen from the folder that holds codemetrics.
//
//go:embed codemetrics/pool.toml codemetrics/*.py
var Codemetrics embed.FS
