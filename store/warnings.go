package store

import (
	"encoding/json"
	"slices"
)

// Warnings are those of a task's stages: of each one's latest result that is a JSON
// object, the list of strings in its member "warnings". A warning of several stages is
// there once.
func Warnings(history []Attempt) []string {
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
			continue // another form, or none: no warnings
		}
		for _, w := range result.Warnings {
			if !slices.Contains(all, w) {
				all = append(all, w)
			}
		}
	}
	return all
}
