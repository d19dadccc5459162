package browsertest

import "testing"

// .ci/run asks this before all others, with $CUELIGHT_TEST_BROWSER=1: what it passes
// with, the others must not do without.
func TestNeed_FindsBrowserAndModules(t *testing.T) {
	Need(t)
}
