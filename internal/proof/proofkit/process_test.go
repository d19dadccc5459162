package proofkit_test

import (
	"path/filepath"
	"testing"

	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

func TestProjectDir_IsThatOfCuelight(t *testing.T) {
	t.Parallel()
	want, err := filepath.Abs("../../..")
	must(t, err)
	if got := proofkit.ProjectDir(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
