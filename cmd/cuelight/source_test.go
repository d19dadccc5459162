package main

import (
	"strings"
	"testing"

	"github.com/cuelight/cuelight/store"
)

func TestTitleOf_HasNoSecretOfItsSource(t *testing.T) {
	t.Parallel()
	for _, source := range []string{
		"s3://bucket/clip.mp4?X-Amz-Signature=c0ffee", "https://me:c0ffee@h/clip.mp4", "s3://bucket/clip.mp4#c0ffee",
	} {
		for _, text := range []string{shownSource(source), titleOf(store.Task{Source: source}), labelOf(source)} {
			if strings.Contains(text, "c0ffee") || !strings.Contains(text, "clip.mp4") {
				t.Errorf("%s is shown as %q", source, text)
			}
		}
	}
}
