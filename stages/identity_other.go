//go:build !linux && !darwin

package stages

func bootID() string       { return "" }
func processSpace() string { return "" }

func processStart(int) string { return "" }
