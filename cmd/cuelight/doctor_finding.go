package main

import (
	"fmt"

	"github.com/cuelight/cuelight/internal/dbconn"
)

// finding is one result of a check.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warning or failed
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

func ok(format string, args ...any) []finding {
	return []finding{{Status: "ok", Detail: fmt.Sprintf(format, args...)}}
}

func warning(detail, fix string) []finding {
	return []finding{{Status: "warning", Detail: detail, Fix: fix}}
}

func failure(detail, fix string) []finding {
	return []finding{{Status: "failed", Detail: detail, Fix: fix}}
}

// errorFinding is the finding of an error.
func errorFinding(err error) []finding {
	e := dbconn.Explain(err)
	return failure(e.Text, e.Hint)
}
