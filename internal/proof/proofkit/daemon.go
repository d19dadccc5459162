package proofkit

import (
	"os"
	"strings"
)

// DaemonEnviron returns this program's environment for a `cuelight serve`, without any setting of
// PostgreSQL or Cuelight but the given ones.
func DaemonEnviron(settings ...string) []string {
	var environ []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "PG") && !strings.HasPrefix(variable, "CUELIGHT_") {
			environ = append(environ, variable)
		}
	}
	return append(environ, settings...)
}
