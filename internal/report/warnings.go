package report

import (
	"encoding/json"
	"slices"

	"github.com/cuelight/cuelight/store"
)

// Warnings lists the warnings in the latest results of a task's stages, each once. A result
// may be a JSON object with a member "warnings", a list of strings.
func Warnings(history []store.Attempt) []string {
	latest := map[string]int{}
	for i, a := range history {
		if a.Outcome == "completed" {
			latest[a.Stage] = i
		}
	}
	all := []string{}
	for i, a := range history {
		if j, ok := latest[a.Stage]; !ok || i != j {
			continue
		}
		var result struct {
			Warnings []string `json:"warnings"`
		}
		if json.Unmarshal(a.Result, &result) != nil {
			continue // no warnings
		}
		for _, w := range result.Warnings {
			if !slices.Contains(all, w) {
				all = append(all, w)
			}
		}
	}
	return all
}
