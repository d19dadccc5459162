package metrics

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

func TestWebhookOutcomes_AreThoseOfPackageWebhook(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "webhook", "webhook.go"))
	if err != nil {
		t.Fatal(err)
	}
	var defined []string
	for _, c := range regexp.MustCompile(`(?m)^\t\w+ +Outcome = "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
		defined = append(defined, c[1])
	}
	if got := webhookOutcomes(); !slices.Equal(got, defined) || len(got) < 6 {
		t.Errorf("counted outcomes: %q; those of package webhook: %q", got, defined)
	}
}
