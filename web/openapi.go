package web

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

// openAPI describes the API of a server without a base path.
//
//go:embed openapi.json
var openAPI []byte

// withServerURL returns a description for a server with a base path.
func withServerURL(text []byte, path string) ([]byte, error) {
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("read openapi.json: %w", err)
	}
	servers, err := json.Marshal([]map[string]string{{"url": path}})
	if err != nil {
		return nil, err
	}
	doc["servers"] = servers
	return json.Marshal(doc)
}
