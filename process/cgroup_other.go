//go:build !linux

package process

import "errors"

func hostHierarchy() (hierarchy, error) {
	return hierarchy{}, errors.New("this system has no control groups")
}
