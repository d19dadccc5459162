package remote

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
)

// maxRequest is the size limit of a request's JSON, in bytes: results have up to 16 MiB.
const maxRequest = 20 << 20

// decode reads a body. It refuses members that it does not know.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return problem.New(problem.TooLarge, "the body is larger than %d bytes, the limit", large.Limit)
	}
	if err != nil {
		return problem.New(problem.InvalidRequest, "the body is incomplete")
	}
	// The body is complete, and the answer may take long.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		var value any
		if json.Unmarshal(text, &value) == nil {
			if name, allowed := unknownMember(value, reflect.TypeOf(v).Elem()); name != "" {
				return problem.New(problem.InvalidRequest, "unknown member %q; allowed: %s", name, strings.Join(allowed, ", "))
			}
		}
		return problem.New(problem.InvalidRequest, "the body is invalid: %v", err)
	}
	return nil
}

// unknownMember returns the name of a member of a JSON value that a type does not have, and the names
// that it has there. name is empty for none.
func unknownMember(value any, t reflect.Type) (name string, allowed []string) {
	switch value := value.(type) {
	case []any:
		if t.Kind() != reflect.Slice {
			return "", nil
		}
		for _, element := range value {
			if name, allowed = unknownMember(element, t.Elem()); name != "" {
				return name, allowed
			}
		}
	case map[string]any:
		if t.Kind() != reflect.Struct {
			return "", nil
		}
		members := make(map[string]reflect.Type)
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			members[name], allowed = f.Type, append(allowed, name)
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			member, known := members[name]
			if !known {
				return name, allowed
			}
			if inner, allowedThere := unknownMember(value[name], member); inner != "" {
				return inner, allowedThere
			}
		}
	}
	return "", nil
}
