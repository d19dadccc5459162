//go:build !linux

package pgserver

// memoryDir is for Linux, which has one everywhere.
func memoryDir() (string, bool) { return "", false }
