package metrics

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// What the package webhook calls the outcomes is what they are counted by.
func TestWebhookOutcomes_AreThoseOfPackageWebhook(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join("..", "webhook", "webhook.go"))
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, c := range regexp.MustCompile(`(?m)^\t\w+ +Outcome = "(\w+)"`).FindAllStringSubmatch(string(text), -1) {
		there = append(there, c[1])
	}
	if got := webhookOutcomes(); !slices.Equal(got, there) || len(got) < 6 {
		t.Errorf("counted are %q, there are %q", got, there)
	}
}
