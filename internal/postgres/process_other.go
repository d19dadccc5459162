//go:build !linux

package postgres

// anyProcessIn cannot be told without /proc.
func anyProcessIn(string) (running, known bool) { return false, false }
