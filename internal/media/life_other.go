//go:build unix && !linux

package media

// lookAt and readyToRun have no counterpart here: steps forward are all that
// is known of a child.
func lookAt(int) vitals   { return vitals{} }
func readyToRun(int) bool { return false }
