package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
)

const (
	maxBody     = 64 << 10 // bytes of JSON, if a route sets no other limit
	maxDepth    = 32       // of nested objects and arrays
	bodyTimeout = 30 * time.Second
)

// decode reads the body of a request, one JSON value of up to limit bytes, into v. If optional, it may be empty.
func decode(w http.ResponseWriter, r *http.Request, limit int64, optional bool, v any) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			return err
		}
		return problem.New(problem.InvalidRequest, "the body is incomplete")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the body is complete
	if len(text) == 0 && optional {
		return nil
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return problem.New(problem.UnsupportedMediaType, "the header Content-Type must be application/json")
	}
	return unmarshalStrict(text, v)
}

// withoutBody makes a handler that reads no body refuse any but an empty object.
func withoutBody(handle handler) handler {
	return func(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
		if err := decode(w, r, maxBody, true, &struct{}{}); err != nil {
			return jsonResponse{}, err
		}
		return handle(w, r)
	}
}

func unmarshalStrict(text []byte, v any) error {
	err := checkJSON(text)
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		err = d.Decode(v)
	}
	if err != nil {
		return problem.New(problem.InvalidRequest, "the body is invalid: %v", err)
	}
	return nil
}

// checkJSON refuses what json.Decoder accepts: repeated members, of which it takes the last while other programs
// take the first; data after the value; and deep nesting.
func checkJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := checkValue(d, 0, false); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("data follows the JSON value")
	}
	return nil
}

// checkValue checks one value. If anyNames, the client chooses the names of members, as in params. Otherwise they
// are ours and in lower case. json.Decoder ignores case, so a program that checks the body before it reaches us could
// see other members.
func checkValue(d *json.Decoder, depth int, anyNames bool) error {
	token, err := d.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	open, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	if depth == maxDepth {
		return fmt.Errorf("it is nested more than %d levels deep", maxDepth)
	}
	names := make(map[string]bool)
	for d.More() {
		name := ""
		if open == '{' {
			token, err := d.Token()
			if err != nil {
				return err
			}
			name = token.(string) // the decoder accepts nothing else here
			switch {
			case names[name]:
				return fmt.Errorf("the member %q is repeated", name)
			case !anyNames && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "":
				return fmt.Errorf("unknown member %q", name)
			}
			names[name] = true
		}
		if err := checkValue(d, depth+1, anyNames || name == "params"); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}
