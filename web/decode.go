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
)

const (
	bodyMost = 64 << 10 // bytes of JSON, where a route does not say otherwise
	deepest  = 32       // objects and arrays in one another
	// readIn is how long a body may take to come, where a handler does not say
	// otherwise.
	readIn = 30 * time.Second
)

// decode reads a request's body into v: one JSON value, at most so many bytes.
// Without optional there must be one.
func decode(w http.ResponseWriter, r *http.Request, most int64, optional bool, v any) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			return err
		}
		return refuse(kindRequest, "the body breaks off")
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // it came in time
	if len(text) == 0 && optional {
		return nil
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return refuse(kindMediaType, "the header Content-Type must say application/json")
	}
	return unmarshal(text, v)
}

// unmarshal is json.Unmarshal for what strangers write.
func unmarshal(text []byte, v any) error {
	if err := checkJSON(text); err != nil {
		return refuse(kindRequest, "the body is not as it should be: %v", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return refuse(kindRequest, "the body is not as it should be: %v", err)
	}
	return nil
}

// checkJSON refuses what json.Decoder would let pass: names that come twice, of
// which it takes the last where others take the first; anything after the value;
// and depth that is nobody's need.
func checkJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := checkValue(d, 0, false); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("there is something after the JSON")
	}
	return nil
}

// checkValue checks one value. Free says that its names are the client's own, as those
// of params are. All others are ours, in small letters: json.Decoder also takes others
// for these, so that whoever reads a body before us would see another.
func checkValue(d *json.Decoder, depth int, free bool) error {
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
	if depth == deepest {
		return fmt.Errorf("it is deeper than %d", deepest)
	}
	names := make(map[string]bool)
	for d.More() {
		name := ""
		if open == '{' {
			token, err := d.Token()
			if err != nil {
				return err
			}
			name = token.(string) // the decoder takes nothing else here
			switch {
			case names[name]:
				return fmt.Errorf("the name %q is there twice", name)
			case !free && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "":
				return fmt.Errorf("there is no member %q", name)
			}
			names[name] = true
		}
		if err := checkValue(d, depth+1, free || name == "params"); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}
