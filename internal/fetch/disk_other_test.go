//go:build !linux

package fetch

import "testing"

func mountSmallDisk(t *testing.T) string {
	t.Skip("no disk can be mounted here")
	return ""
}
