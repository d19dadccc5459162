//go:build !linux && !darwin

package stages

func bootID() string       { return "" }
func pidNamespace() string { return "" }

func processStart(int) string { return "" }
