// Package jsonbody reads JSON from bodies of requests, strictly: encoding/json accepts more than what a
// client can mean.
//
// [Read] reads a body up to a limit, and [Decode] decodes it. Decode refuses unknown members, with the
// names of those that are allowed; members in another case and repeated members, which a program that
// checks the body before it reaches us could take for others; deep nesting; long lists; and data after the value.
// Where the type of the value has no fields, as in a json.RawMessage or a map, the client chooses the names.
//
// All errors are problems: invalid-request, or too-large.
package jsonbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
)

const (
	maxDepth = 32 // of nested objects and arrays
	// maxElements is that of a list whose elements have a Go type: {} takes two bytes and may become a large
	// struct. maxMembers is that of an object.
	maxElements = 10_000
	maxMembers  = 100_000
)

// Read returns the body, of at most limit bytes. Afterwards the request has no read deadline any more: the
// answer may take long.
func Read(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, problem.New(problem.TooLarge, "the body is larger than %d bytes, the limit", large.Limit)
	}
	if err != nil {
		return nil, problem.New(problem.InvalidRequest, "the body is incomplete")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return text, nil
}

// Decode decodes one JSON value into what v points to.
func Decode(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err := checkValue(d, reflect.TypeOf(v), 0)
	if err == nil {
		if _, end := d.Token(); end != io.EOF {
			err = errors.New("data follows the JSON value")
		}
	}
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	var unknown *unknownMemberError
	switch {
	case errors.As(err, &unknown):
		return problem.New(problem.InvalidRequest, "%v", unknown)
	case err != nil:
		return problem.New(problem.InvalidRequest, "the body is invalid: %v", err)
	}
	return nil
}

type unknownMemberError struct {
	name    string
	allowed []string
}

func (e *unknownMemberError) Error() string {
	if len(e.allowed) == 0 {
		return fmt.Sprintf("unknown member %q; no members are allowed", e.name)
	}
	return fmt.Sprintf("unknown member %q; allowed: %s", e.name, strings.Join(e.allowed, ", "))
}

// checkValue checks the next value for a Go type. t is nil if the client chooses the names of members.
func checkValue(d *json.Decoder, t reflect.Type, depth int) error {
	token, err := next(d)
	open, isNested := token.(json.Delim)
	if err != nil || !isNested {
		return err
	}
	if depth == maxDepth {
		return fmt.Errorf("it is nested more than %d levels deep", maxDepth)
	}
	if open == '{' {
		err = checkMembers(d, shapeOf(t), depth)
	} else {
		err = checkElements(d, elementOf(t), depth)
	}
	if err == nil {
		_, err = next(d) // the end of the object or array
	}
	return err
}

// next returns the next token of a value that has not ended.
func next(d *json.Decoder) (json.Token, error) {
	token, err := d.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return token, err
}

func checkElements(d *json.Decoder, t reflect.Type, depth int) error {
	for n := 0; d.More(); n++ {
		if t != nil && n == maxElements {
			return fmt.Errorf("a list has more than %d elements", maxElements)
		}
		if err := checkValue(d, t, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func checkMembers(d *json.Decoder, s shape, depth int) error {
	seen := make(map[string]bool)
	for d.More() {
		token, err := next(d)
		if err != nil {
			return err
		}
		name := token.(string) // the decoder accepts nothing else here
		if seen[name] {
			return fmt.Errorf("the member %q is repeated", name)
		}
		if seen[name] = true; len(seen) > maxMembers {
			return fmt.Errorf("an object has more than %d members", maxMembers)
		}
		member := s.others
		if s.isStruct {
			i := slices.Index(s.names, name)
			if i < 0 {
				return &unknownMemberError{name: name, allowed: s.names}
			}
			member = s.types[i]
		}
		if err := checkValue(d, member, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// shape is what a Go type allows in an object: the members of a struct, or any names.
type shape struct {
	isStruct bool
	names    []string
	types    []reflect.Type
	others   reflect.Type // of all members, if it is no struct
}

// shapeOf returns the shape of a type. A type that decodes itself allows any names.
func shapeOf(t reflect.Type) (s shape) {
	if t = decoded(t); t == nil {
		return s
	}
	switch t.Kind() {
	case reflect.Map:
		s.others = t.Elem()
	case reflect.Struct:
		s.isStruct = true
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if inner := shapeOf(f.Type); f.Anonymous && name == "" && inner.isStruct {
				s.names, s.types = append(s.names, inner.names...), append(s.types, inner.types...)
			} else if name != "" && name != "-" {
				s.names, s.types = append(s.names, name), append(s.types, f.Type)
			}
		}
	}
	return s
}

func elementOf(t reflect.Type) reflect.Type {
	if t = decoded(t); t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
		return t.Elem()
	}
	return nil
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// decoded returns the type that encoding/json decodes into for t, or nil if that is not known from t.
func decoded(t reflect.Type) reflect.Type {
	for ; t != nil; t = t.Elem() {
		if t.Implements(unmarshaler) || reflect.PointerTo(t).Implements(unmarshaler) {
			return nil
		}
		if t.Kind() != reflect.Pointer {
			return t
		}
	}
	return nil
}
