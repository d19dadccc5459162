package web

import (
	_ "embed"
	"encoding/json"
	"fmt"
)

// openAPI describes the API, for a server at the root.
//
//go:embed openapi.json
var openAPI []byte

// withServer is a description for a server that is mounted at a path.
func withServer(text []byte, path string) ([]byte, error) {
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
