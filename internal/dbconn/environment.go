package dbconn

import (
	"slices"
	"strings"
)

// Environment is a list of variables as os.Environ returns it.
type Environment []string

// Get returns the value of a variable, or "". The last entry of a name counts, as for
// os/exec.
func (e Environment) Get(name string) string {
	for _, entry := range slices.Backward(e) {
		if key, value, ok := strings.Cut(entry, "="); ok && key == name {
			return value
		}
	}
	return ""
}
