package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/cuelight/cuelight/internal/usererr"
)

// escapedZero matches the escape \u0000 in JSON, unless its backslash is escaped.
var escapedZero = regexp.MustCompile(`(?:^|[^\\])(?:\\\\)*\\u0000`)

// parseParams checks the JSON and reports the position of an error, which the database
// would not.
func parseParams(text string) (json.RawMessage, error) {
	var object map[string]json.RawMessage
	err := json.Unmarshal([]byte(text), &object)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		at := min(int(syntax.Offset), len(text))
		return nil, &usererr.Error{
			Kind: usererr.Usage,
			Text: fmt.Sprintf("--params is not JSON: %s, at character %d", syntax, at),
			Hint: "it must be an object, such as '{\"title\": \"Holiday\"}'",
		}
	case err != nil, object == nil:
		return nil, &usererr.Error{
			Kind: usererr.Usage, Text: "--params is not a JSON object", Hint: "such as '{\"title\": \"Holiday\"}'",
		}
	case escapedZero.MatchString(text):
		return nil, usererr.Usagef("--params contains \\u0000, which PostgreSQL cannot store")
	}
	return json.RawMessage(text), nil
}

// parseTime parses a time, or a delay from now.
func parseTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(d), nil
	}
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02",
	} {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	return time.Time{}, invalidFlag("not-before", text, "a time such as 2030-01-31T08:00:00Z, or a delay such as 90m")
}
