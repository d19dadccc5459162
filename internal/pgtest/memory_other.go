//go:build !linux

package pgtest

// memoryDir is for Linux, which has one everywhere.
func memoryDir() (string, bool) { return "", false }
