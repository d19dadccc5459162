package main

import (
	"fmt"

	"github.com/cuelight/cuelight/internal/dbconn"
)

// finding is one result of a check.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warning or wrong
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

func ok(format string, args ...any) []finding {
	return []finding{{Status: "ok", Detail: fmt.Sprintf(format, args...)}}
}

func warning(detail, fix string) []finding {
	return []finding{{Status: "warning", Detail: detail, Fix: fix}}
}

func wrong(detail, fix string) []finding {
	return []finding{{Status: "wrong", Detail: detail, Fix: fix}}
}

// failed is the finding of an error.
func failed(err error) []finding {
	e := dbconn.Explain(err)
	return wrong(e.Text, e.Hint)
}
