//go:build !linux && !darwin

package stages

func bootID() string       { return "" }
func pidNamespace() string { return "" }

func processStart(int) string { return "" }

// isZombie is false: Cuelight reads the state of a process on Linux only.
func isZombie(int) bool { return false }
