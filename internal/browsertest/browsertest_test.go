package browsertest

import "testing"

// .ci/run runs this test first, with $CUELIGHT_TEST_BROWSER=1. If it passes, no other test
// may be skipped because a browser is missing.
func TestRequire_FindsBrowserAndModules(t *testing.T) {
	Require(t)
}
