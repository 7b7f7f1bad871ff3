//go:build !linux

package tree

// interfacesOf returns nil: only Linux has network namespaces.
func interfacesOf([]*Entry, Key) map[networkInterface]NetworkBytes { return nil }
