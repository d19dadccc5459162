// Command validator validates documents for package formattest: it reads requests as JSON from
// standard input, and writes a response for each.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/Eyevinn/hls-m3u8/m3u8"
	gohls "github.com/bluenviron/gohlslib/v2/pkg/playlist"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/cuelight/cuelight/internal/formattest"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "validator:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	requests, responses := json.NewDecoder(in), json.NewEncoder(out)
	compilers := make(map[string]*jsonschema.Compiler) // by the path of the file
	for {
		var request formattest.Request
		if err := requests.Decode(&request); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		var response formattest.Response
		var err error
		if request.Schemas == "" {
			response.Variants, err = parsePlaylist(request.Playlist)
		} else {
			err = validate(compilers, request)
		}
		if err != nil {
			response.Error = err.Error()
		}
		if err := responses.Encode(response); err != nil {
			return err
		}
	}
}

func parsePlaylist(text []byte) (variants int, err error) {
	_, err1 := gohls.Unmarshal(text)
	list, _, err2 := m3u8.Decode(*bytes.NewBuffer(text), true)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("gohlslib reads it: %v; hls-m3u8 reads it: %v", err1, err2)
	}
	if master, ok := list.(*m3u8.MasterPlaylist); ok {
		variants = len(master.Variants)
	}
	return variants, nil
}

func validate(compilers map[string]*jsonschema.Compiler, r formattest.Request) error {
	compiler, err := readSchemas(compilers, r.Schemas)
	if err != nil {
		return err
	}
	schema, err := compiler.Compile("file://" + r.Schemas + "#" + r.Pointer)
	if err != nil || r.Document == nil {
		return err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.Document))
	if err != nil {
		return err
	}
	return schema.Validate(document)
}

// readSchemas reads a file once.
func readSchemas(compilers map[string]*jsonschema.Compiler, path string) (*jsonschema.Compiler, error) {
	if c := compilers[path]; c != nil {
		return c, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	closeSchemas(doc)
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	compilers[path] = c
	return c, c.AddResource("file://"+path, doc)
}

// closeSchemas makes objects with named properties reject all others.
func closeSchemas(v any) {
	switch v := v.(type) {
	case map[string]any:
		_, named := v["properties"].(map[string]any)
		if _, said := v["additionalProperties"]; named && !said && v["type"] == "object" {
			v["additionalProperties"] = false
		}
		for _, w := range v {
			closeSchemas(w)
		}
	case []any:
		for _, w := range v {
			closeSchemas(w)
		}
	}
}
