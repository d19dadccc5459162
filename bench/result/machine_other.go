//go:build !linux && !darwin

package result

import "runtime"

func cpu() string              { return runtime.GOARCH }
func memory() uint64           { return 0 }
func kernel() string           { return runtime.GOOS }
func filesystem(string) string { return "" }
